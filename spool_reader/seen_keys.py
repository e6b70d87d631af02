"""The set of calls that have a row already, in about one bit each."""

from __future__ import annotations

from .rows import Key

_PAGE_BITS = 13


class SeenKeys:
    """Bitmaps over `seq` for each (session, rank, step), in pages: a far-off number costs one page, not all before it."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, int, int, int], bytearray] = {}
        self._count = 0

    def add(self, key: Key) -> bool:
        """Enter a key; False when it was there."""
        session, rank, step, seq = key
        page = self._pages.setdefault((session, rank, step, seq >> _PAGE_BITS), bytearray())
        place, bit = (seq & (1 << _PAGE_BITS) - 1) >> 3, 1 << (seq & 7)
        if place >= len(page):
            # At least doubled, so that filling a page costs few extensions, and a step of few calls stays small.
            page.extend(bytes(max(place + 1 - len(page), len(page), 16)))
        if page[place] & bit:
            return False
        page[place] |= bit
        self._count += 1
        return True

    def __contains__(self, key: Key) -> bool:
        session, rank, step, seq = key
        page = self._pages.get((session, rank, step, seq >> _PAGE_BITS))
        place = (seq & (1 << _PAGE_BITS) - 1) >> 3
        return page is not None and place < len(page) and bool(page[place] & 1 << (seq & 7))

    def __len__(self) -> int:
        return self._count

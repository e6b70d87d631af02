"""The set of calls that have a row already, in one bit each."""

from __future__ import annotations

from .rows import Key


class SeenKeys:
    """A bitmap over `seq` for each (session, rank, step)."""

    def __init__(self) -> None:
        self._bits: dict[tuple[str, int, int], bytearray] = {}
        self._count = 0

    def add(self, key: Key) -> bool:
        """Enter a key; False when it was there."""
        session, rank, step, seq = key
        bits = self._bits.setdefault((session, rank, step), bytearray())
        place, bit = seq >> 3, 1 << (seq & 7)
        if place >= len(bits):
            bits.extend(bytes(max(place + 1 - len(bits), len(bits), 64)))
        if bits[place] & bit:
            return False
        bits[place] |= bit
        self._count += 1
        return True

    def __contains__(self, key: Key) -> bool:
        session, rank, step, seq = key
        bits = self._bits.get((session, rank, step))
        return bits is not None and seq >> 3 < len(bits) and bool(bits[seq >> 3] & 1 << (seq & 7))

    def __len__(self) -> int:
        return self._count

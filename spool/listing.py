"""Names-only listings, remembered until they are used up, so that taking n bundles costs n steps and not n listings."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path

from . import files
from .names import BundleName, Place, parse_bundle_name, rank_of, step_of

Found = tuple[Place, BundleName]


class Listing:
    """What waited in each rank when it was last looked at, in execution order, served in turn over the ranks."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ranks: dict[int, deque[Found]] = {}
        self._last = -1

    def next(self, ranks: Collection[int] | None) -> Found | None:
        """One remembered candidate, of the rank whose turn it is; None when nothing is remembered."""
        waiting = sorted(rank for rank, queue in self._ranks.items() if queue and (ranks is None or rank in ranks))
        if not waiting:
            return None
        self._last = next((rank for rank in waiting if rank > self._last), waiting[0])
        return self._ranks[self._last].popleft()

    def lost(self, place: Place) -> None:
        """Somebody else was quicker: leave the next few names of that rank to them, so that two readers do not race."""
        queue = self._ranks.get(place.rank)
        if queue:
            queue.rotate(-random.randrange(min(len(queue), 64)))

    def refresh(self, ranks: Collection[int] | None) -> bool:
        """List again what is used up; whether anything was found."""
        for rank, folder in ranks_of(self._root):
            if (ranks is None or rank in ranks) and not self._ranks.get(rank):
                self._ranks[rank] = deque(sorted(waiting_in(folder, rank), key=_execution_order))
        return any(self._ranks.values())


def _execution_order(found: Found) -> tuple[int, int, str]:
    return found[0].step, found[1].seq, found[0].file


def ranks_of(root: Path) -> Iterator[tuple[int, Path]]:
    """The rank folders of a spool."""
    for name in files.names(root):
        rank = rank_of(name)
        if rank is not None:
            yield rank, root / name


def steps_of(folder: Path) -> Iterator[tuple[int, Path]]:
    """The step folders of a rank folder; none when it has gone."""
    for name in _names(folder):
        step = step_of(name)
        if step is not None:
            yield step, folder / name


def waiting_in(folder: Path, rank: int) -> Iterator[Found]:
    """The bundles that wait in a rank folder."""
    for step, inside in steps_of(folder):
        for name in _names(inside):
            parsed = parse_bundle_name(name)
            if parsed is not None:
                yield Place(rank, step, name), parsed


def _names(folder: Path) -> list[str]:
    try:
        return files.names(folder)
    except OSError as error:
        if error.errno in files.GONE:
            return []
        raise

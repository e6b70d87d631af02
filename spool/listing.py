"""Names-only listings, remembered until they are used up, so that taking n bundles costs n steps and not n listings.

A look stops at the first step folders that hold enough, so that memory does not grow with what waits, and starts where the
last one found something; every few seconds it starts from the beginning, where bundles that were given back lie.
"""

from __future__ import annotations

import contextlib
import random
import time
from bisect import insort
from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path

from . import files
from .consumers import CLAIMED
from .names import BundleName, Place, parse_bundle_name, rank_of, step_of
from .waiting import WaitingFile, Wanted

Found = tuple[Place, BundleName]

# How many are remembered: of one rank, and of all ranks together, though some of each rank in any case.
_ENOUGH, _IN_ALL, _LEAST = 4096, 16384, 64
_FROM_START_EVERY_S = 5.0
# A change within this time of a listing may carry the same time stamp as the listing saw.
SETTLED_NS = 2 * 10**9
# NFS version 3 may hide a file for ever that was made in the same tick as the listing it remembers.
_TOUCH_EVERY_S = 15.0
# After losing a race, pick among so many, so that two readers do not race for each name; after so many in a row, list again.
_WINDOW = 16


class Listing:
    """What waited in each rank when it was last looked at, in execution order, served in turn over the ranks."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ranks: dict[int, deque[Found]] = {}
        self._last = -1
        self._cursor: dict[int, int] = {}
        self._from_start: dict[int, float] = {}
        self._losses: dict[int, int] = {}
        self._trust_times = not files.is_network(root)
        self._nothing_since: dict[Path, int] = {}
        self._hides = files.is_nfs3(root)
        self._touched = time.monotonic()
        self._wanted: Wanted | None = None
        self._enough = _ENOUGH

    def ask(self, wanted: Wanted | None) -> None:
        """Remember only what `wanted` takes; what is remembered for another question is forgotten."""
        if wanted is not self._wanted:
            self._wanted = wanted
            self._ranks.clear()
            self._cursor.clear()

    def next(self, ranks: Collection[int] | None) -> Found | None:
        """One remembered candidate, of the rank whose turn it is; None when nothing is remembered."""
        waiting = sorted(rank for rank, queue in self._ranks.items() if queue and (ranks is None or rank in ranks))
        if not waiting:
            return None
        self._last = next((rank for rank in waiting if rank > self._last), waiting[0])
        queue = self._ranks[self._last]
        if not self._losses.get(self._last):
            return queue.popleft()
        index = random.randrange(min(len(queue), _WINDOW))
        found = queue[index]
        del queue[index]
        return found

    def took(self, rank: int) -> None:
        """A claim of this rank succeeded."""
        self._losses.pop(rank, None)

    def lost(self, rank: int) -> None:
        """Somebody else was quicker."""
        self._losses[rank] = self._losses.get(rank, 0) + 1
        if self._losses[rank] >= _WINDOW:
            self._ranks.pop(rank, None)
            self._losses.pop(rank)

    def put_back(self, place: Place, parsed: BundleName) -> None:
        """A bundle was given back: it takes its turn in execution order again."""
        queue = self._ranks.get(place.rank)
        if queue:
            insort(queue, (place, parsed), key=_execution_order)
        else:
            self._cursor[place.rank] = min(place.step, self._cursor.get(place.rank, 0))

    def refresh(self, ranks: Collection[int] | None) -> bool:
        """List again what is used up; whether anything was found."""
        touch = self._hides and time.monotonic() - self._touched > _TOUCH_EVERY_S
        if touch:
            self._touched = time.monotonic()
            # The janitor lists the claims' folder from this host too.
            _touch(self._root)
            _touch(self._root / CLAIMED)
        folders = list(ranks_of(self._root))
        self._enough = max(_LEAST, min(_ENOUGH, _IN_ALL // max(len(folders), 1)))
        for rank, folder in folders:
            if (ranks is None or rank in ranks) and not self._ranks.get(rank):
                if touch:
                    _touch(folder)
                self._ranks[rank] = deque(sorted(self._look(rank, folder, touch), key=_execution_order))
        return any(queue for rank, queue in self._ranks.items() if ranks is None or rank in ranks)

    def _look(self, rank: int, folder: Path, touch: bool) -> list[Found]:
        steps = sorted(steps_of(folder))
        now = time.monotonic()
        cursor = self._cursor.get(rank, -1)
        if now - self._from_start.get(rank, float("-inf")) > _FROM_START_EVERY_S:
            self._from_start[rank], cursor = now, -1
        found: list[Found] = []
        for part in ([s for s in steps if s[0] >= cursor], [s for s in steps if s[0] < cursor]):
            for step, inside in part:
                if touch:
                    _touch(inside)
                here = self._chosen(self._waiting(rank, step, inside))
                if here and not found:
                    self._cursor[rank] = step
                found += here
                if len(found) >= self._enough:
                    return found
            if found:
                break
        return found

    def _chosen(self, here: list[Found]) -> list[Found]:
        wanted = self._wanted
        return here if wanted is None else [found for found in here if wanted(WaitingFile.at(self._root, *found))]

    def _waiting(self, rank: int, step: int, inside: Path) -> list[Found]:
        """The bundles in one step folder, which is not listed again where its time tells that it still holds none."""
        if not self._trust_times:
            return list(bundles_in(inside, rank, step))
        try:
            changed = files.changed(inside)
        except OSError as error:
            if error.errno in files.GONE:
                return []
            raise
        if self._nothing_since.get(inside) == changed:
            return []
        found = list(bundles_in(inside, rank, step))
        if not found and time.time_ns() - changed > SETTLED_NS:
            if len(self._nothing_since) > 100_000:
                self._nothing_since.clear()
            self._nothing_since[inside] = changed
        return found


def _touch(folder: Path) -> None:
    with contextlib.suppress(OSError):
        files.touch(folder)


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
    for name in files.names_if_any(folder):
        step = step_of(name)
        if step is not None:
            yield step, folder / name


def bundles_in(folder: Path, rank: int, step: int) -> Iterator[Found]:
    """The bundles in one step folder; none when it has gone."""
    for name in files.names_if_any(folder):
        parsed = parse_bundle_name(name)
        if parsed is not None:
            yield Place(rank, step, name), parsed

"""Counting what is in a directory spool, cheaply enough for once a second: names only, and only of folders that changed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from . import files
from .consumers import CLAIMED
from .interface import SpoolStats
from .listing import SETTLED_NS, ranks_of, steps_of
from .moves import QUARANTINE
from .names import parse_bundle_name, parse_claim_name

# Number of names and the first of them.
_Count = tuple[int, str]
_Parse = Callable[[str], object]


class Counter:
    """Counts per folder, remembered where a folder's time tells whether it has changed (not on network file systems)."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._trust_times = not files.is_network(root)
        self._known: dict[Path, tuple[int, _Count]] = {}

    def stats(self, fenced: int) -> SpoolStats:
        """Everything at once. Raises OSError when the spool itself cannot be listed."""
        by_rank: dict[int, int] = {}
        seen: dict[Path, tuple[int, _Count]] = {}
        oldest: int | None = None
        for rank, folder in sorted(ranks_of(self._root)):
            first = ""
            for _, inside in sorted(steps_of(folder)):
                count, name = self._count(inside, parse_bundle_name, seen)
                if count:
                    by_rank[rank] = by_rank.get(rank, 0) + count
                    first = first or os.path.join(inside, name)
            if first:
                with contextlib.suppress(OSError):
                    changed = files.changed(first)
                    oldest = changed if oldest is None else min(oldest, changed)
        claimed = sum(self._count(folder, parse_claim_name, seen)[0] for folder in _below(self._root / CLAIMED, 1))
        failed = sum(self._count(folder, parse_bundle_name, seen)[0] for folder in _below(self._root / QUARANTINE, 2))
        self._known = seen
        age = None if oldest is None else max(0.0, (time.time_ns() - oldest) / 1e9)
        return SpoolStats(sum(by_rank.values()), claimed, failed, age, by_rank, fenced)

    def _count(self, folder: Path, parse: _Parse, seen: dict[Path, tuple[int, _Count]]) -> _Count:
        changed = 0
        if self._trust_times:
            try:
                changed = files.changed(folder)
            except OSError as error:
                if error.errno in files.GONE:
                    return 0, ""
                raise
            known = self._known.get(folder)
            if known is not None and known[0] == changed:
                seen[folder] = known
                return known[1]
        names = [name for name in files.names_if_any(folder) if parse(name) is not None]
        count = len(names), min(names, default="")
        if self._trust_times and time.time_ns() - changed > SETTLED_NS:
            seen[folder] = changed, count
        return count


def waiting_of(root: Path, rank: int, *, sizes: bool) -> tuple[int, int]:
    """Bundles that wait of one rank, and their bytes if asked for (which costs a look at each)."""
    count = size = 0
    for _, inside in steps_of(root / f"rank{rank}"):
        for name in files.names_if_any(inside):
            if parse_bundle_name(name) is not None:
                count += 1
                if sizes:
                    with contextlib.suppress(OSError):
                        size += files.size(inside / name)
    return count, size


def _below(folder: Path, depth: int) -> list[Path]:
    level = [folder]
    for _ in range(depth):
        level = [inner / name for inner in level for name in files.names_if_any(inner)]
    return level

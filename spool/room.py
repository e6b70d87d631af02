"""Whether there is room for one more bundle: the writer's side of back-pressure.

The limits hold for each rank, whose folder has one writer. Counting what waits there costs a listing, so it is estimated: the
last count plus what was published since. Only when the estimate reaches the limit is the folder listed again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import files
from .consumers import CONSUMERS
from .errors import SpoolFull
from .options import SpoolOptions

log = logging.getLogger("spool_check.spool")

_LOOK_EVERY_BYTES = 64 * 2**20
_LOOK_EVERY_S = 1.0
# Pauses while the spool is full; a pause is also at least so many times as long as the count took.
_PAUSES = (0.02, 1.0)
_COUNT_SHARE = 10
# `sample`: one call in this many is kept while the spool is full.
SAMPLE_EVERY = 10
_FEW_INODES = 16


@dataclass
class _Estimate:
    bundles: int = 0
    size: int = 0


class Room:
    """The limits of one writer process on one spool. `count(rank)` lists what waits: bundles and bytes."""

    def __init__(self, root: Path, options: SpoolOptions, count: Callable[[int], tuple[int, int]]) -> None:
        self._root, self._options, self._count = root, options, count
        self._ranks: dict[int, _Estimate] = {}
        self._unlooked, self._looked_at = _LOOK_EVERY_BYTES, float("-inf")
        self._full_calls = 0
        self._warned = False
        self._lock = threading.Lock()

    def enter(self, rank: int, size: int) -> bool:
        """Count `size` bytes as published if there is room, by the policy; False: the bundle is to be dropped."""
        why = self.why_not(rank, size)
        if why is None:
            if self._warned:
                self._warned = False
                log.warning("%s: there is room again", self._root)
            return True
        options = self._options
        with self._lock:
            self._full_calls += 1
            sampled = self._full_calls % SAMPLE_EVERY == 1
        if options.when_full != "block" and not (options.when_full == "sample" and sampled):
            self._say(f"{why}; calls are dropped (when_full: {options.when_full})")
            return False
        self._say(f"{why}; waiting at most {options.block_timeout:g} s a call")
        deadline = time.monotonic() + options.block_timeout
        pause = _PAUSES[0]
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            started = time.monotonic()
            why = self.why_not(rank, size)
            if why is None:
                return True
            pause = max(min(2 * pause, _PAUSES[1]), _COUNT_SHARE * (time.monotonic() - started))
        log.warning("%s; waited %g s, the call is dropped", why, options.block_timeout)
        return False

    def why_not(self, rank: int, size: int) -> str | None:
        """Count `size` bytes as published if there is room; else why there is none."""
        with self._lock:
            estimate = self._ranks.get(rank)
            if estimate is None:
                estimate = self._ranks[rank] = _Estimate(*self._counted(rank))
            why = self._too_much(estimate, size)
            if why is not None:
                estimate.bundles, estimate.size = self._counted(rank)
                why = self._too_much(estimate, size)
            why = why or self._no_space(size)
            if why is not None:
                return f"{self._root}, rank {rank}: {why}"
            estimate.bundles += 1
            estimate.size += size
            return None

    def _counted(self, rank: int) -> tuple[int, int]:
        with contextlib.suppress(OSError):
            return self._count(rank)
        return 0, 0

    def _too_much(self, estimate: _Estimate, size: int) -> str | None:
        options = self._options
        if estimate.bundles >= options.max_pending_bundles:
            return f"{estimate.bundles} bundles wait unread, the limit is {options.max_pending_bundles}"
        # One bundle larger than the limit goes through when nothing else waits: it could never be written otherwise.
        if (
            options.max_pending_bytes is not None
            and estimate.bundles
            and estimate.size + size > options.max_pending_bytes
        ):
            return f"{estimate.size} bytes wait unread, the limit is {options.max_pending_bytes}"
        return None

    def _no_space(self, size: int) -> str | None:
        now = time.monotonic()
        if self._unlooked + size >= _LOOK_EVERY_BYTES or now - self._looked_at > _LOOK_EVERY_S:
            try:
                space, inodes = files.free(self._root)
            except OSError:
                # The write itself will say what is wrong.
                return None
            if space - size < self._options.reserve_bytes:
                return f"{space} bytes are free, {self._options.reserve_bytes} are kept in reserve"
            if inodes is not None and inodes < _FEW_INODES:
                return f"{inodes} inodes are free"
            self._unlooked, self._looked_at = 0, now
        self._unlooked += size
        return None

    def _say(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning("%s; %s", text, self._readers())

    def _readers(self) -> str:
        with contextlib.suppress(OSError):
            records = files.names_if_any(self._root / CONSUMERS)
            readers = sorted(name.removesuffix(".json") for name in records if name.endswith(".json"))
            return f"readers there: {', '.join(readers)}" if readers else "no reader is there"
        return "the readers cannot be listed"


def full(error: OSError, what: object) -> SpoolFull:
    """The error for a disk that is full, with its remedy."""
    return SpoolFull(f"{what}: {error.strerror}; free some space or quota, or let a reader catch up")

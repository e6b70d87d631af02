"""Whether there is room for one more bundle: the writer's side of back-pressure.

Counting what waits costs a listing, so it is estimated: the last count plus what was published since. Only when the estimate
reaches the limit is the folder listed again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from . import files
from .errors import SpoolFull
from .options import SpoolOptions

log = logging.getLogger("spool_check.spool")

_LOOK_EVERY_BYTES = 64 * 2**20
_LOOK_EVERY_S = 1.0
# `sample`: one call in this many is kept while the spool is full.
SAMPLE_EVERY = 10


class Room:
    """The limits of one writer on one spool."""

    def __init__(self, root: Path, options: SpoolOptions, count: Callable[[], tuple[int, int]]) -> None:
        self._root, self._options, self._count = root, options, count
        self._bundles = self._bytes = 0
        self._unlooked, self._looked_at = _LOOK_EVERY_BYTES, float("-inf")
        self._full_calls = 0
        self._warned = False
        self._lock = threading.Lock()

    def enter(self, size: int) -> bool:
        """Count `size` bytes as published if there is room, by the policy; False: the bundle is to be dropped."""
        deadline = None
        while True:
            why = self._why_not(size)
            if why is None:
                self._warned = False
                return True
            policy = self._options.when_full
            if deadline is None:
                with self._lock:
                    self._full_calls += 1
                    keep = policy == "block" or (policy == "sample" and self._full_calls % SAMPLE_EVERY == 1)
                if not keep:
                    self._say(f"{why}; the call is dropped (when_full: {policy})")
                    return False
                deadline = time.monotonic() + self._options.block_timeout
                self._say(f"{why}; waiting for a reader, at most {self._options.block_timeout:g} s a call")
            if time.monotonic() >= deadline:
                self._say(f"{why}; waited {self._options.block_timeout:g} s, the call is dropped", again=True)
                return False
            time.sleep(0.05)

    def _why_not(self, size: int) -> str | None:
        with self._lock:
            options = self._options
            over = self._bundles >= options.max_pending_bundles or (
                options.max_pending_bytes is not None and self._bytes + size > options.max_pending_bytes
            )
            if over:
                self._bundles, self._bytes = self._count()
                if self._bundles >= options.max_pending_bundles:
                    return f"{self._root}: {self._bundles} bundles wait, the limit is {options.max_pending_bundles}"
                if options.max_pending_bytes is not None and self._bytes + size > options.max_pending_bytes:
                    return f"{self._root}: {self._bytes} bytes wait, the limit is {options.max_pending_bytes}"
            now = time.monotonic()
            if self._unlooked + size >= _LOOK_EVERY_BYTES or now - self._looked_at > _LOOK_EVERY_S:
                space, inodes = self._free()
                if space is not None and space - size < options.reserve_bytes:
                    return f"{self._root}: {space} bytes are free, the reserve is {options.reserve_bytes}"
                if inodes is not None and inodes < 16:
                    return f"{self._root}: {inodes} inodes are free"
                self._unlooked, self._looked_at = 0, now
            self._unlooked += size
            self._bundles += 1
            self._bytes += size
            return None

    def _free(self) -> tuple[int | None, int | None]:
        with contextlib.suppress(OSError):
            return files.free(self._root)
        return None, None

    def _say(self, text: str, *, again: bool = False) -> None:
        if again or not self._warned:
            self._warned = True
            log.warning("%s", text)


def full(error: OSError, what: object) -> SpoolFull:
    """The error for a disk that is full, with its remedy."""
    return SpoolFull(f"{what}: {error.strerror}; free some space or quota, or let a reader catch up")

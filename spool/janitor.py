"""The janitor: finds consumers that have died, and gives back what they had claimed, one attempt older.

A consumer is dead when its process has ended on this machine, or when its record has kept its content for `stale_after` of this
observer's own watching. Time in which the observer did not look (it was paused, or had no need to claim) counts only in part:
both may have been paused together.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from . import files
from .consumers import CLAIMED, CONSUMERS
from .names import parse_claim_name
from .process import is_gone, parse_record

log = logging.getLogger("spool_check.spool")


@dataclass
class _Watched:
    content: bytes
    silent: float = 0.0


class Observer:
    """Judges by content and by its own watching whether the owner of a record is still alive."""

    def __init__(self, stale_after: float) -> None:
        self._stale_after = stale_after
        self._watched: dict[str, _Watched] = {}
        self._last: float | None = None

    def look(self, records: Callable[[str], bytes], owners: Collection[str]) -> list[str]:
        """The owners that are dead, of all that there are; `records` reads one's record, empty where there is none."""
        now = time.monotonic()
        # A gap in the watching is no silence of the watched.
        elapsed = 0.0 if self._last is None else min(now - self._last, self._stale_after / 2)
        self._last = now
        for gone in self._watched.keys() - set(owners):
            del self._watched[gone]
        return [owner for owner in owners if self._is_dead(owner, records(owner), elapsed)]

    def _is_dead(self, owner: str, content: bytes, elapsed: float) -> bool:
        record = parse_record(content)
        # A session's record holds its process apart from what it says of the training.
        process = record.get("process", record)
        if isinstance(process, dict) and is_gone(process):
            return True
        watched = self._watched.get(owner)
        if watched is None or watched.content != content:
            self._watched[owner] = _Watched(content)
            return False
        watched.silent += elapsed
        # Whoever beats more rarely than we expect says so.
        promised = record.get("stale_after")
        limit = max(self._stale_after, promised) if isinstance(promised, (int, float)) else self._stale_after
        return watched.silent > limit


class Janitor:
    """Takes back what dead consumers have claimed; `give_back` says what becomes of each claimed file."""

    def __init__(self, root: Path, *, stale_after: float, give_back: Callable[[Path, str], object]) -> None:
        self._root, self._stale_after, self._give_back = root, stale_after, give_back
        self._observer = Observer(stale_after)
        self._next = float("-inf")
        self._hides = files.is_nfs3(root)
        self._failing = False

    def visit(self, own: str) -> int:
        """Look at the others if it is time to; returns how many claims were taken back.

        Raises OSError when the others cannot be seen. What cannot be taken back now (no room for its folder) must not keep a
        reader from what is ready: it is logged, and the next visit tries again.
        """
        now = time.monotonic()
        if now < self._next:
            return 0
        self._next = now + min(self._stale_after / 4, 1.0)
        folders = [name for name in files.names_if_any(self._root / CLAIMED) if name != own]
        dead = self._observer.look(self.record_of, folders)
        if not dead:
            return 0
        try:
            taken = self.take_back_alone(dead)
        except OSError as error:
            if not self._failing:
                log.warning("%s: claims of %s could not be taken back yet: %s", self._root, ", ".join(dead), error)
            self._failing = True
            return 0
        self._failing = False
        return taken

    def record_of(self, consumer: str) -> bytes:
        """A consumer's heartbeat as it stands; empty when there is none."""
        with contextlib.suppress(OSError):
            return files.read(self._root / CONSUMERS / f"{consumer}.json")
        return b""

    def take_back_alone(self, dead: list[str]) -> int:
        """One janitor at a time; where the lock cannot be had for want of space or rights, each rename still has one winner.

        Raises OSError when some claim could not be given back; the others were.
        """
        from filelock import SoftReadWriteLock, Timeout

        lock = SoftReadWriteLock(
            str(self._root / ".janitor"),
            is_singleton=False,
            heartbeat_interval=1,
            stale_threshold=max(3.0, self._stale_after),
        )
        try:
            lock.acquire_write(timeout=0.5)
        except Timeout:
            return 0
        except OSError as error:
            if error.errno not in (*files.FULL, errno.EACCES, errno.EPERM):
                raise
            return self._take_back(dead)
        try:
            return self._take_back(dead)
        finally:
            with contextlib.suppress(OSError):
                lock.release()

    def _take_back(self, dead: list[str]) -> int:
        """Give back every claim of these consumers, and forget those of whom nothing is left."""
        total = 0
        failed: OSError | None = None
        for consumer in dead:
            folder = self._root / CLAIMED / consumer
            if self._hides:
                # NFS 3 may hide a claim for ever that was made in the same tick as the listing it remembers.
                with contextlib.suppress(OSError):
                    files.touch(folder)
            claims = [name for name in files.names_if_any(folder) if parse_claim_name(name) is not None]
            taken = 0
            for name in claims:
                try:
                    self._give_back(folder, name)
                    taken += 1
                except OSError as error:
                    failed = error
            if taken:
                log.warning("%s: consumer %s is gone; %d of its claims were taken back", self._root, consumer, taken)
            total += taken
            if taken == len(claims):
                with contextlib.suppress(OSError):
                    files.remove_folder(folder)
                with contextlib.suppress(OSError):
                    files.unlink(self._root / CONSUMERS / f"{consumer}.json")
        if failed is not None:
            raise failed
        return total

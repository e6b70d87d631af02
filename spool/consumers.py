"""Consumers of a directory spool: who is alive, and what the dead have left.

Each consumer keeps `consumers/{id}.json` whose content changes with every beat. Others judge it by content and by their own
monotonic clock: never by file times, never across clocks. A consumer of the same boot of the same host is dead as soon
as its process is. What a dead consumer had claimed is renamed back with one more attempt.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from . import files
from .names import parse_claim_name

log = logging.getLogger("spool_check.spool")

CLAIMED, CONSUMERS = "claimed", "consumers"


def boot_id() -> str:
    """What tells this boot of this machine from every other."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def process_start(pid: int) -> str:
    """When a process started, in clock ticks; empty when there is no such process. Tells it from a later one of that number."""
    with contextlib.suppress(OSError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        state, *rest = stat.rpartition(")")[2].split()
        return "" if state in "ZX" else rest[18]
    return ""


def new_consumer_name() -> str:
    """A name that no other consumer has: host, process, chance."""
    host = "".join(c if c.isalnum() else "-" for c in socket.gethostname())[:40]
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


class Heartbeat:
    """This consumer's sign of life, renewed by a thread three times per `stale_after`."""

    def __init__(self, root: Path, consumer: str, *, stale_after: float, mode: int) -> None:
        self.path = root / CONSUMERS / f"{consumer}.json"
        self._period, self._mode = stale_after / 3, mode
        self._fixed = {
            "host": socket.gethostname(),
            "boot": boot_id(),
            "pid": os.getpid(),
            "start": process_start(os.getpid()),
            "stale_after": stale_after,
        }
        self._beat = 0
        self._stop = threading.Event()
        self._write()
        self._thread = threading.Thread(target=self._run, name="spool-heartbeat", daemon=True)
        self._thread.start()

    def _write(self) -> None:
        self._beat += 1
        record = {**self._fixed, "beat": self._beat, "nonce": secrets.token_hex(8)}
        files.replace_small(self.path, json.dumps(record).encode(), mode=self._mode)

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            try:
                self._write()
            except OSError as error:
                # On a full disk the old record stands; others may take our claims back, which fencing makes harmless.
                log.warning("%s: heartbeat not written: %s", self.path, error.strerror)

    def stop(self) -> None:
        """Stop beating and remove the record."""
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            files.unlink(self.path)


class Janitor:
    """Takes back what dead consumers have claimed; `give_back` says what becomes of each claimed file."""

    def __init__(self, root: Path, own: str, *, stale_after: float, give_back: Callable[[Path, str], None]) -> None:
        self._root, self._own, self._stale_after, self._give_back = root, own, stale_after, give_back
        self._seen: dict[str, tuple[bytes, float]] = {}
        self._boot = boot_id()
        self._next = float("-inf")

    def visit(self) -> int:
        """Look at the others if it is time to; returns how many claims were taken back."""
        now = time.monotonic()
        if now < self._next:
            return 0
        self._next = now + min(self._stale_after / 3, 1.0)
        folders = self._names(CLAIMED)
        dead = [name for name in folders if name != self._own and self._is_dead(name, now)]
        for gone in self._seen.keys() - set(folders):
            del self._seen[gone]
        return self._take_back_locked(dead) if dead else 0

    def _names(self, folder: str) -> list[str]:
        try:
            return files.names(self._root / folder)
        except OSError as error:
            if error.errno in files.GONE:
                return []
            raise

    def _is_dead(self, consumer: str, now: float) -> bool:
        try:
            content = files.read(self._root / CONSUMERS / f"{consumer}.json")
        except OSError:
            content = b""
        if self._died_here(content):
            return True
        last, since = self._seen.get(consumer, (None, now))
        if last != content:
            self._seen[consumer] = (content, now)
            return False
        return now - since > self._stale_after

    def _died_here(self, content: bytes) -> bool:
        try:
            record = json.loads(content)
            same_boot = bool(self._boot) and record["boot"] == self._boot
            return same_boot and bool(record["start"]) and process_start(int(record["pid"])) != record["start"]
        except (ValueError, KeyError, TypeError):
            return False

    def _take_back_locked(self, dead: list[str]) -> int:
        """One janitor at a time; where the lock cannot be had for want of space, renames alone still have one winner each."""
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
        taken = 0
        for consumer in dead:
            folder = self._root / CLAIMED / consumer
            for name in self._names(f"{CLAIMED}/{consumer}"):
                if parse_claim_name(name) is not None:
                    self._give_back(folder, name)
                    taken += 1
            with contextlib.suppress(OSError):
                files.remove_folder(folder)
            with contextlib.suppress(OSError):
                files.unlink(self._root / CONSUMERS / f"{consumer}.json")
            self._seen.pop(consumer, None)
            log.warning("%s: consumer %s is gone, its claims were taken back", self._root, consumer)
        return taken

"""A consumer of a directory spool: its claim folder and its sign of life.

`consumers/{name}.{generation}.json` changes its content with every beat; others judge it by content and by their own monotonic
clock: never by file times, never across clocks. The claim folder is made by one exclusive mkdir, so no two consumers ever share
one. A consumer that could not beat for `stale_after` must expect that others took it for dead: it goes on under a new
generation.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import socket
import threading
import time
from pathlib import Path

from . import files, spare
from .options import SpoolOptions
from .process import this_process

log = logging.getLogger("spool_check.spool")

CLAIMED, CONSUMERS = "claimed", "consumers"
# All beats have the same length, so that one can be written over the other on a full disk.
_RECORD_BYTES = 512


def _now() -> float:
    """Seconds that go on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _safe(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name)[:40]


class Consumer:
    """One reader of one spool, from its first claim to its close."""

    def __init__(self, root: Path, name: str | None, options: SpoolOptions) -> None:
        self._root, self._options = root, options
        self._name = f"{_safe(name or socket.gethostname())}-{secrets.token_hex(4)}"
        self._generation = 0
        self._heartbeat: Heartbeat | None = None
        self._left: list[Path] = []
        self._spent = False
        self.own = ""

    @property
    def folder(self) -> Path:
        """Where its claims lie."""
        return self._root / CLAIMED / self.own

    def join(self) -> None:
        """Become known, or known anew when the sign of life was interrupted for too long. Raises OSError."""
        try:
            self._join()
        except OSError as error:
            if error.errno not in files.FULL or not spare.spend(self._root):
                raise
            self._spent = True
            log.warning("%s: the file system is full; the room set aside for readers is used", self._root)
            self._join()

    def _join(self) -> None:
        if self._heartbeat is None:
            mode = files.folder_mode(self._options.mode)
            for folder in (CLAIMED, CONSUMERS):
                files.make_folder(self._root / folder, mode)
            self._begin(mode)
        elif self._heartbeat.interrupted:
            self._renew()

    def _begin(self, mode: int) -> None:
        while True:
            self._generation += 1
            own = f"{self._name}.{self._generation}"
            if files.make_folder(self._root / CLAIMED / own, mode):
                break
        path = self._root / CONSUMERS / f"{own}.json"
        try:
            heartbeat = Heartbeat(path, stale_after=self._options.stale_after, mode=self._options.mode)
        except OSError:
            with contextlib.suppress(OSError):
                files.remove_folder(self._root / CLAIMED / own)
            raise
        self.own, self._heartbeat = own, heartbeat

    def _renew(self) -> None:
        old, folder, name = self._heartbeat, self.folder, self.own
        assert old is not None
        try:
            self._begin(files.folder_mode(self._options.mode))
        except OSError as error:
            if error.errno not in files.FULL:
                raise
            # No room for a new folder: go on as before; `done` tells whose a bundle is in any case.
            old.forgive()
            return
        old.stop(remove=False)
        self._left.append(folder)
        log.warning("consumer %s gave no sign of life for %g s; it goes on as %s", name, old.stale_after, self.own)

    def make_folder_again(self) -> None:
        """Others may remove the claim folder of a consumer that they take for dead."""
        files.make_folder(self.folder, files.folder_mode(self._options.mode))

    def leave(self) -> None:
        """Stop the sign of life and remove what is empty."""
        if self._heartbeat is None:
            return
        self._left.append(self.folder)
        self._heartbeat.stop()
        self._heartbeat = None
        for folder in self._left:
            with contextlib.suppress(OSError):
                files.remove_folder(folder)
        self._left.clear()
        if self._spent:
            self._spent = False
            spare.keep(self._root, self._options.mode)


class Heartbeat:
    """A record renewed by a thread three times per `stale_after`."""

    def __init__(self, path: Path, *, stale_after: float, mode: int) -> None:
        self.stale_after = stale_after
        self._path, self._mode = path, mode
        self._fixed = {**this_process(), "stale_after": stale_after}
        self._beat = 0
        self._stop = threading.Event()
        files.replace_small(self._path, self._record(), mode=self._mode)
        self._renewed = _now()
        self._thread = threading.Thread(target=self._run, name="spool-heartbeat", daemon=True)
        self._thread.start()

    @property
    def interrupted(self) -> bool:
        """Whether the record is so old that others may take this consumer for dead."""
        return _now() - self._renewed > self.stale_after

    def forgive(self) -> None:
        """Count the interruption as over."""
        self._renewed = _now()

    def _record(self) -> bytes:
        self._beat += 1
        record = {**self._fixed, "beat": self._beat, "nonce": secrets.token_hex(8)}
        return json.dumps(record).encode().ljust(_RECORD_BYTES)

    def _run(self) -> None:
        while not self._stop.wait(self.stale_after / 3):
            if self.interrupted:
                # Too late: whoever took this consumer for dead must not see it come back. The next claim starts anew.
                continue
            before = _now()
            try:
                files.overwrite(self._path, self._record())
            except OSError as error:
                log.warning("%s: heartbeat not written: %s", self._path, error.strerror)
            else:
                self._renewed = before

    def stop(self, *, remove: bool = True) -> None:
        """Stop beating; the record of a generation whose claims are still in hand stays for the janitor."""
        self._stop.set()
        self._thread.join()
        if remove:
            with contextlib.suppress(OSError):
                files.unlink(self._path)

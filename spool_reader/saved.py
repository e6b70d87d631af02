"""A folder of saved failures as a spool that keeps what it gives: judged again, never deleted or moved.

`--save-errors` fills such a folder: bundles side by side, each under a name that tells its call. Its header counts.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NoReturn

from spool import (
    Bundle,
    BundleError,
    Claim,
    Session,
    SessionInfo,
    SessionRecord,
    Spool,
    SpoolStats,
    SpoolUnavailable,
    Waiting,
    WaitingFile,
    Wanted,
    read_header,
)
from spool.claims import FileSource

SUFFIX = ".safetensors"


def is_saved_folder(place: Path) -> bool:
    """Whether a folder holds bundles side by side, and none of a spool's own folders."""
    if not place.is_dir() or any(place.glob("rank*/")):
        return False
    return next(_files(place), None) is not None


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if path.suffix == SUFFIX and not path.name.startswith("."))


class SavedFailures(Spool):
    """Every bundle of the folder once, in order of rank, step and seq."""

    durable = True
    shareable = True
    keeps = True

    def __init__(self, folder: Path, *, attempts: int) -> None:
        self.url = str(folder)
        self.wake = threading.Event()
        self.attempts = attempts
        self._ready: OrderedDict[Path, tuple[WaitingFile, int]] = OrderedDict()
        self._claimed = 0
        found = sorted(map(_look, _files(folder)), key=lambda waiting: (waiting.rank, waiting.step, waiting.seq))
        for waiting in found:
            self._ready[waiting.path] = waiting, 0

    def claim(
        self, timeout: float = 0.0, *, ranks: Collection[int] | None = None, wanted: Wanted | None = None
    ) -> Claim | None:
        for path, (waiting, attempt) in self._ready.items():
            if (ranks is None or waiting.rank in ranks) and (wanted is None or wanted(waiting)):
                del self._ready[path]
                self._claimed += 1
                return _SavedClaim(self, waiting, attempt)
        time.sleep(timeout)
        return None

    def waiting(self, *, ranks: Collection[int] | None = None) -> Iterator[Waiting]:
        for waiting, _ in list(self._ready.values()):
            if ranks is None or waiting.rank in ranks:
                yield waiting

    def settle(self, waiting: WaitingFile, attempt: int | None) -> None:
        """The end of a claim; with an attempt it is claimed again."""
        self._claimed -= 1
        if attempt is not None and attempt < self.attempts:
            self._ready[waiting.path] = waiting, attempt

    def sessions(self) -> list[SessionRecord]:
        return []

    def stats(self) -> SpoolStats:
        by_rank: dict[int, int] = {}
        for waiting, _ in self._ready.values():
            by_rank[waiting.rank] = by_rank.get(waiting.rank, 0) + 1
        return SpoolStats(len(self._ready), self._claimed, 0, None, by_rank)

    def retry_quarantined(self) -> int:
        """There is no quarantine here: a file that cannot be used stays where it is and is named each time."""
        return 0

    def tidy(self) -> None:
        """Nothing is ever removed here."""

    def close(self) -> None:
        self._ready.clear()

    def publish(self, bundle: Bundle) -> bool:
        self._not_here()

    def open_session(self, info: SessionInfo) -> Session:
        self._not_here()

    def _not_here(self) -> NoReturn:
        raise SpoolUnavailable(f"{self.url}: a folder of saved failures, which no training writes to; give a spool")


class _SavedClaim(Claim):
    def __init__(self, spool: SavedFailures, waiting: WaitingFile, attempt: int) -> None:
        self.rank, self.step, self.seq, self.api = waiting.rank, waiting.step, waiting.seq, waiting.api
        self.name, self.attempt = waiting.path.name, attempt
        self.source = FileSource(str(waiting.path))
        self._spool, self._waiting = spool, waiting

    def done(self) -> bool:
        self._spool.settle(self._waiting, None)
        return True

    def fail(self, reason: str) -> None:
        self._spool.settle(self._waiting, None)

    def release(self, *, failed_attempt: bool = False) -> None:
        self._spool.settle(self._waiting, self.attempt + failed_attempt)


def _look(path: Path) -> WaitingFile:
    try:
        header = read_header(path)
    except (BundleError, OSError):
        # Claimed like the others, and named with its fault when it is loaded.
        return WaitingFile(path, 0, 0, 0, path.stem)
    return WaitingFile(path, header.rank, header.step, header.seq, header.api)

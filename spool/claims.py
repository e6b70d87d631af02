"""Claims of a directory spool, and the handle by which another process loads a claimed file."""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .bundle import Bundle
from .codec import read_bundle
from .errors import SpoolUnavailable
from .interface import Claim
from .names import BundleName, Place

if TYPE_CHECKING:
    from .directory import DirectorySpool

# Outages of a mount that pass by themselves, and how long to wait for that.
_PASSING = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN)
_PAUSES = (0.1, 1.0)


@dataclass(frozen=True)
class FileSource:
    """A claimed file, loaded with one read by whichever process of this host has the handle."""

    path: str

    def load(self) -> Bundle:
        """The bundle; BundleError when it cannot be used, SpoolUnavailable when it is gone (fenced) or out of reach."""
        for pause in (*_PAUSES, None):
            try:
                return read_bundle(self.path)
            except OSError as error:
                if error.errno not in _PASSING or pause is None:
                    raise SpoolUnavailable(
                        f"{self.path}: {error.strerror}; the bundle itself may be good, it was not read"
                    ) from error
                time.sleep(pause)
        raise AssertionError("unreachable")


class DirectoryClaim(Claim):
    """A file in this consumer's claim folder."""

    def __init__(self, spool: DirectorySpool, place: Place, parsed: BundleName, path: Path) -> None:
        self.rank, self.step, self.seq, self.api = place.rank, place.step, parsed.seq, parsed.api
        self.name, self.attempt = place.file, parsed.attempt
        self.source = FileSource(str(path))
        self.place, self.path = place, path
        self._spool = spool

    def done(self) -> bool:
        return self._spool._finish(self)

    def fail(self, reason: str) -> None:
        self._spool._fail(self, reason)

    def release(self, *, failed_attempt: bool = False) -> None:
        self._spool._release(self, failed_attempt=failed_attempt)

"""What a spool is: bundles go in by `publish`, come out by `claim`, and are gone after `Claim.done`.

Directory, memory and socket are peers behind this interface; writer and reader code never asks which one it has. What differs is
an attribute: `durable` (survives the process), `shareable` (another process can open it by its url).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

from .bundle import Bundle
from .waiting import Waiting, Wanted

COUNTS = ("seen", "captured", "filtered", "unreplayable", "dropped", "published", "errors")
STATES = ("open", "closed", "failed")


@dataclass(frozen=True)
class SessionInfo:
    """Who writes: one session is one run of a training process on one rank."""

    session: str
    rank: int
    host: str
    pid: int
    version: str
    started: float


@dataclass(frozen=True)
class SessionRecord:
    """What a writer last said of itself. `beat` grows with every heartbeat; `heartbeat` is the writer's own clock."""

    session: str
    rank: int
    host: str
    pid: int
    version: str
    started: float
    state: str = "open"
    counts: Mapping[str, int] = field(default_factory=dict)
    beat: int = 0
    heartbeat: float = 0.0


@dataclass(frozen=True)
class SpoolStats:
    """How much is where; `fenced` counts claims of this process that somebody else took back."""

    ready: int
    claimed: int
    quarantined: int
    oldest_age_s: float | None = None
    ready_by_rank: Mapping[int, int] = field(default_factory=dict)
    fenced: int = 0


class BundleSource(Protocol):
    """A picklable handle by which any process of this host loads a claimed bundle."""

    def load(self) -> Bundle:
        """The bundle; BundleError when it cannot be used."""


class Claim(ABC):
    """One bundle that belongs to this consumer until it says done, fail or release."""

    rank: int
    step: int
    seq: int
    api: str
    name: str
    attempt: int
    source: BundleSource

    def load(self) -> Bundle:
        """The bundle; BundleError when it cannot be used."""
        return self.source.load()

    @abstractmethod
    def done(self) -> bool:
        """Delete the bundle; False when it was taken back meanwhile (somebody else has it)."""

    @abstractmethod
    def fail(self, reason: str) -> None:
        """Put the bundle into quarantine, with the reason beside it."""

    @abstractmethod
    def release(self, *, failed_attempt: bool = False) -> None:
        """Give the bundle back; after `failed_attempt` it counts one more, and at the limit it goes into quarantine."""


class Session(ABC):
    """A writer's record in the spool, from open to close."""

    info: SessionInfo

    @abstractmethod
    def heartbeat(self, counts: Mapping[str, int]) -> None:
        """Say that the writer is alive, and its counts so far."""

    @abstractmethod
    def close(self, state: str = "closed", counts: Mapping[str, int] | None = None) -> None:
        """Say that no bundle will follow; `failed` when the training ended by an exception."""


class Spool(ABC):
    """A place for bundles; a context manager that closes itself."""

    url: str
    durable: bool
    shareable: bool
    # `done` leaves the bundle where it is: what is there is judged by every reader anew.
    keeps: bool = False
    # Set by whoever knows that something was published (a file-system event): it ends the wait inside `claim`.
    wake: threading.Event

    @abstractmethod
    def publish(self, bundle: Bundle) -> bool:
        """Make a bundle visible, whole or not at all; False when the policy for a full spool dropped it.

        Open the session first: names are unique only among bundles of sessions that the spool knows.
        Raises SpoolFull or SpoolUnavailable; then nothing is visible.
        """

    @abstractmethod
    def claim(
        self, timeout: float = 0.0, *, ranks: Collection[int] | None = None, wanted: Wanted | None = None
    ) -> Claim | None:
        """Take one bundle, in execution order within a rank and fair over ranks; None after `timeout` seconds without.

        What `wanted` refuses stays where it is. It is asked once for each look at the spool.
        """

    @abstractmethod
    def waiting(self, *, ranks: Collection[int] | None = None) -> Iterator[Waiting]:
        """What is ready, in execution order within a rank; nothing is taken."""

    @abstractmethod
    def open_session(self, info: SessionInfo) -> Session:
        """Announce a writer."""

    @abstractmethod
    def sessions(self) -> list[SessionRecord]:
        """What every writer last said."""

    @abstractmethod
    def stats(self) -> SpoolStats:
        """How much is ready, claimed and in quarantine; cheap enough for once a second."""

    @abstractmethod
    def retry_quarantined(self) -> int:
        """Make every bundle in quarantine ready again, with all its attempts before it; how many there were."""

    @abstractmethod
    def tidy(self) -> None:
        """Remove what is empty and will stay so."""

    @abstractmethod
    def close(self) -> None:
        """Give claims back and let go of everything."""

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""A recorded call on its way from the training thread to the publisher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spool import Bundle, NotRepresentable


@dataclass(slots=True)
class CallRecord:
    """Snapshots and identity of one call.

    `nbytes` is the memory that the copies take; `events` tell when they are complete; `skip` is why it cannot be replayed.

    Not frozen: setting sixteen fields of a frozen one takes three times as long, on the training thread.
    """

    session: str
    rank: int
    step: int
    seq: int
    api: str
    phase: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any
    mutated: Mapping[str, Any]
    context: Mapping[str, Any]
    producer: Mapping[str, Any]
    time: float
    nbytes: int
    events: tuple[Any, ...] = ()
    origin: str | None = None
    skip: str | None = None

    def bundle(self) -> Bundle:
        """The call as a bundle; one that a bundle cannot hold becomes a header with the reason."""
        identity: dict[str, Any] = {
            "session": self.session,
            "rank": self.rank,
            "step": self.step,
            "seq": self.seq,
            "api": self.api,
            "phase": self.phase,
            "context": self.context,
            "producer": self.producer,
            "time": self.time,
            "origin": self.origin,
        }
        if self.skip is not None:
            return Bundle.unreplayable(reason=f"not replayable ({self.skip})", **identity)
        try:
            for event in self.events:
                event.synchronize()
            return Bundle.build(
                args=self.args, kwargs=self.kwargs, result=self.result, mutated=self.mutated, **identity
            )
        except NotRepresentable as error:
            reason = str(error)
        except Exception as error:
            # Some kind of tensor that answers no question: its call still gets a row.
            reason = f"spool-check failed to store it: {error!r}"
        return Bundle.unreplayable(reason=f"not replayable ({reason})", **identity)

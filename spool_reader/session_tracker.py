"""Which writers are still at work: closed, failed, or silent for too long by this process's own clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from spool import SessionRecord

from .summary import SessionState


class SessionTracker:
    """Follows the session files; a writer is dead when its file says open and its beat has stood still too long."""

    def __init__(
        self, stale_after: float, ranks: Collection[int] | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stale_after = stale_after
        self._ranks = ranks
        self._clock = clock
        self._records: dict[tuple[str, int], SessionRecord] = {}
        self._moved: dict[tuple[str, int], float] = {}
        self._history: frozenset[tuple[str, int]] = frozenset()

    def update(self, records: Iterable[SessionRecord]) -> None:
        """Take what the session files say now."""
        now = self._clock()
        for record in records:
            if self._ranks is not None and record.rank not in self._ranks:
                continue
            key = (record.session, record.rank)
            known = self._records.get(key)
            if known is None or (known.beat, known.state) != (record.beat, record.state):
                self._moved[key] = now
            self._records[key] = record

    def set_aside_history(self) -> int:
        """Do not wait for, nor end with, the sessions that are over by now: an earlier run was theirs."""
        self._history = frozenset(key for key, record in self._records.items() if record.state != "open")
        return len(self._history)

    @property
    def states(self) -> list[SessionState]:
        """The sessions of this run, by rank."""
        return [
            SessionState.of(record, dead=self._dead(key))
            for key, record in sorted(self._records.items(), key=lambda item: (item[0][1], item[0][0]))
            if key not in self._history
        ]

    @property
    def known(self) -> bool:
        """Whether any session belongs to this run."""
        return len(self._records) > len(self._history)

    @property
    def all_over(self) -> bool:
        """Whether every session of this run has come to an end, good or bad."""
        return self.known and all(state.state != "open" for state in self.states)

    def _dead(self, key: tuple[str, int]) -> bool:
        return self._records[key].state == "open" and self._clock() - self._moved[key] > self._stale_after

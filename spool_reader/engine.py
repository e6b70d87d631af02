"""The parent's side of judging: claim, hand to the pool, make rows durable, give the claims up, in this order."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from spool import Claim, Spool, Wanted

from .answers import Died, Judged, Task, Unloadable, Unread
from .events import Event, Notice, RowWritten
from .pool import Pool
from .results import ResultsFolder
from .rows import INTERNAL, Finding
from .summary import Summary

_GROUP_SECONDS = 0.2
_GROUP_ROWS = 512
# After a bundle that could not be read: whatever was the matter may pass.
_REST_SECONDS = 0.5


@dataclass(frozen=True)
class _Done:
    claim: Claim
    judged: Judged


class Engine:
    """One judging run over one spool and one results folder."""

    def __init__(
        self,
        spool: Spool,
        results: ResultsFolder,
        pool: Pool,
        summary: Summary,
        emit: Callable[[Event], None],
        ranks: Collection[int] | None,
        wanted: Wanted | None,
        attempts: int,
    ) -> None:
        self._spool = spool
        self._results = results
        self._pool = pool
        self._summary = summary
        self._emit = emit
        self._ranks = ranks
        self._wanted = wanted
        self._attempts = attempts
        self._claims: dict[int, Claim] = {}
        self._group: list[_Done] = []
        self._group_since = 0.0
        self._finished: deque[Claim] = deque()
        self._unread_at = -math.inf
        self._tickets = 0
        self._internal: set[str] = set()

    @property
    def in_hand(self) -> int:
        """Bundles that are claimed and not settled."""
        return len(self._claims) + len(self._group) + len(self._finished)

    def step(self, *, claim: bool, patience: float) -> bool:
        """Claim as much as the pool takes, settle what it has finished; False when there was nothing to do.

        Waits at most `patience` seconds: for a bundle when nothing is in hand, else for an answer.
        """
        self._give_up_finished()
        resting = time.monotonic() - self._unread_at < _REST_SECONDS
        claimed = self._claim(patience) if claim and not resting else 0
        answers = 0
        if self._claims:
            answers = self._collect(min(patience, 0.05 if claim and self._pool.room > 0 else 0.5))
        due = len(self._group) >= _GROUP_ROWS or time.monotonic() - self._group_since > _GROUP_SECONDS
        if self._group and (due or not self._claims):
            self.commit()
        if resting and not self._claims:
            time.sleep(min(patience, _REST_SECONDS))
        return bool(claimed or answers or self._claims or resting)

    def commit(self) -> None:
        """Make the finished rows durable, then give their claims up."""
        group, self._group = self._group, []
        group.sort(key=lambda done: done.judged.finding.key[1:])
        new = self._results.commit([(done.judged.finding, done.judged.line) for done in group])
        self._summary.repeated += len(group) - len(new)
        self._finished.extend(done.claim for done in group)
        lines = {done.judged.finding.key: done.judged.line for done in group}
        for finding in new:
            self._summary.add(finding)
            self._summary.checked += finding.verdict != "skip"
            self._emit(RowWritten(finding, lines[finding.key]))
            self._tell_internal(finding)
        self._give_up_finished()

    def _give_up_finished(self) -> None:
        """Delete bundles whose rows are durable; one that cannot be deleted now is tried again at the next step."""
        while self._finished:
            if not self._finished[0].done():
                self._summary.fenced += 1
                text = f"{self._finished[0].name}: another reader had taken this bundle back (fenced)"
                self._emit(Notice("warning", text))
            self._finished.popleft()

    def give_back(self) -> None:
        """Return every claim that is not settled; the bundles are as before."""
        self.commit()
        for claim in self._claims.values():
            claim.release()
        self._claims.clear()

    def _claim(self, patience: float) -> int:
        tasks: list[Task] = []
        room = self._pool.room
        while len(tasks) < room:
            idle = not self._claims and not self._group
            claim = self._spool.claim(patience if idle else 0.0, ranks=self._ranks, wanted=self._wanted)
            if claim is None:
                break
            self._tickets += 1
            self._claims[self._tickets] = claim
            tasks.append(Task(self._tickets, claim.source, (claim.rank, claim.step, claim.seq)))
        if tasks:
            self._pool.submit(tasks)
        return len(tasks)

    def _collect(self, timeout: float) -> int:
        answers = self._pool.collect(timeout)
        for item in answers:
            claim = self._claims.pop(item.ticket)
            if isinstance(item, Judged):
                if not self._group:
                    self._group_since = time.monotonic()
                self._group.append(_Done(claim, item))
            elif isinstance(item, Unloadable):
                self._quarantine(claim, item)
            elif isinstance(item, Unread):
                # Not the bundle's fault, unless nobody may read it: then it must not come back for ever.
                claim.release(failed_attempt=item.refused)
                self._emit(Notice("warning", item.reason))
                self._unread_at = time.monotonic()
            else:
                self._charge(claim, item)
        return len(answers)

    def _quarantine(self, claim: Claim, item: Unloadable) -> None:
        claim.fail(item.reason)
        self._note_quarantined(claim, item.reason)

    def _charge(self, claim: Claim, item: Died) -> None:
        """One attempt for the bundle that a worker died on; the spool puts it into quarantine after the last one."""
        claim.release(failed_attempt=True)
        self._emit(Notice("warning", f"{claim.name}: {item.reason} (attempt {claim.attempt + 1} of {self._attempts})"))
        if claim.attempt + 1 >= self._attempts:
            self._note_quarantined(claim, item.reason)

    def _note_quarantined(self, claim: Claim, reason: str) -> None:
        entry = {"rank": claim.rank, "step": claim.step, "seq": claim.seq, "api": claim.api, "reason": reason}
        self._summary.quarantined.append(entry)
        where = "cannot be judged and stays where it is" if self._spool.keeps else "went into quarantine"
        self._emit(Notice("warning", f"{claim.name} {where}: {reason}"))

    def _tell_internal(self, finding: Finding) -> None:
        message = finding.message
        if message.startswith(INTERNAL) and message not in self._internal and len(self._internal) < 20:
            self._internal.add(message)
            self._emit(Notice("warning", f"{finding.api}: {message}"))

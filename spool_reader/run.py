"""One run of a reader: the loop around the engine, what it waits for, and how it ends."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

from spool import BundleError, Spool, SpoolStats, SpoolUnavailable, Waiting

from .accounts import save_accounts
from .doctor import at_start
from .engine import Engine
from .events import Finished, Listener, Notice, Progress, Started
from .options import ReaderOptions
from .pool import Pool
from .results import ResultsFolder
from .session_tracker import SessionTracker
from .summary import Summary
from .views import Views
from .wake import Waker

_PROGRESS_SECONDS = 1.0
# Counting a long queue takes time: at most a twentieth of it.
_COUNTING_SHARE = 20.0
_TIDY_SECONDS = 10.0
_RETRY_SECONDS = 2.0
_PATIENCE = 0.5
# A dead reader's claims are back so soon after it counts as dead.
_TAKE_BACK_SECONDS = 3.0

WAITING_FOR_SESSION = "waiting for a training process"
WAITING_FOR_BUNDLES = "waiting for bundles"
WAITING_FOR_READERS = "waiting for what other readers have in hand"


class Run:
    """One run of a reader."""

    def __init__(
        self,
        spool: Spool,
        results: ResultsFolder,
        summary: Summary,
        pool: Pool,
        options: ReaderOptions,
        emit: Listener,
        stop: threading.Event,
        abort: threading.Event,
    ) -> None:
        self._spool = spool
        self._results = results
        self._options = options
        self._emit = emit
        self._stop = stop
        self._abort = abort
        self._summary = summary
        summary.results = str(results.path)
        summary.listed = tuple(entry.label for entry in options.judge.known)
        if results.resumed:
            summary.checked = sum(summary.verdicts.values()) - summary.verdicts["skip"]
        self._selection = options.selection
        selective = bool(replace(self._selection, ranks=None))
        wanted = self._wants if selective or spool.keeps else None
        self._engine = Engine(spool, results, pool, self._summary, emit, options.ranks, wanted, options.spool.attempts)
        self._selective, self._rows_before = selective, self._summary.rows
        self._selected: int | None = None
        self._tracker = SessionTracker(options.stale_after, options.ranks)
        self._views = Views(results.path, options.columns)
        self._started = self._told = self._tidied = time.monotonic()
        self._tell_next = self._started + _PROGRESS_SECONDS
        self._rows_told = self._summary.rows
        self._quarantined_before = 0
        devices = tuple(dict.fromkeys(pool.devices))
        emit(Started(spool.url, str(results.path), devices, pool.processes, results.found))
        if results.damaged:
            self._notice(f"{results.damaged} damaged lines in {results.path} are passed over")

    def follow(self) -> None:
        """Until the training is over and everything of it is judged."""
        self._quarantined_before = self._spool.stats().quarantined
        self._look_at_history()
        idle_since: float | None = None
        folder = Path(self._spool.url)
        if folder.is_dir():
            for line in at_start(folder):
                self._notice(line)
        waker = Waker(self._spool, self._notice)
        try:
            while not self._stop.is_set():
                try:
                    busy = self._engine.step(claim=True, patience=_PATIENCE)
                    waiting = "" if busy else self._what_for()
                    self._tell(waiting)
                except SpoolUnavailable as error:
                    self._wait_for_spool(error)
                    continue
                if busy:
                    waker.busy()
                    idle_since = None
                    continue
                waker.idle()
                idle_since = idle_since or time.monotonic()
                if not self._options.follow and self._over(waiting, idle_since):
                    return
        finally:
            waker.close()

    def drain(self) -> None:
        """Until nothing is ready, nor comes back from a reader that has died."""
        if self._options.retry_failed:
            self._notice(f"{self._spool.retry_quarantined()} bundles taken out of quarantine")
        self._quarantined_before = self._spool.stats().quarantined
        self._tracker.update(self._spool.sessions())
        if self._selective:
            self._selected = sum(map(self._wants, self._spool.waiting(ranks=self._options.ranks)))
        idle_since: float | None = None
        while not self._stop.is_set():
            if self._engine.step(claim=True, patience=_PATIENCE):
                self._tell("", ends=True)
                idle_since = None
                continue
            idle_since = idle_since or time.monotonic()
            others = self._spool.stats().claimed
            if not others:
                return
            if time.monotonic() - idle_since > self._options.stale_after + _TAKE_BACK_SECONDS:
                self._notice(f"{others} bundles are in the hands of other readers, which live: theirs to judge")
                return
            self._tell(WAITING_FOR_READERS)

    def finish(self) -> Summary:
        """Settle what is in hand, write the reports, and sum up."""
        while self._engine.in_hand and not self._abort.is_set():
            try:
                self._engine.step(claim=False, patience=_PATIENCE)
                self._tell("")
            except SpoolUnavailable as error:
                self._wait_for_spool(error)
        self.give_back()
        summary = self._summary
        summary.stopped = self._stop.is_set()
        try:
            self._spool.tidy()
            self._tracker.update(self._spool.sessions())
            summary.quarantine_growth = max(0, self._spool.stats().quarantined - self._quarantined_before)
        except SpoolUnavailable as error:
            self._notice(str(error), level="warning")
        summary.sessions = self._tracker.states
        try:
            save_accounts(self._options.out, summary.sessions)
        except OSError as error:
            self._notice(f"the accounts of the sessions were not kept: {error}", level="warning")
        summary.seconds = time.monotonic() - self._started
        summary.reports = self._views.write()
        if not self._abort.is_set():
            summary.reports += self._views.write_page(summary, self._emit)
        self._emit(Finished(summary))
        return summary

    def give_back(self) -> None:
        """Return what is claimed and not judged."""
        try:
            self._engine.give_back()
        except SpoolUnavailable as error:
            # Closing the spool tries again; at worst the next reader's janitor takes the claims back.
            self._notice(str(error), level="warning")

    def _look_at_history(self) -> None:
        """A spool that is empty at the start, with sessions that are over, may be waiting for the next training."""
        if not self._options.await_session:
            return
        self._tracker.update(self._spool.sessions())
        stats = self._spool.stats()
        if not self._results.resumed and self._ready(stats) == 0 and stats.claimed == 0:
            over = self._tracker.set_aside_history()
            if over:
                self._notice(f"the spool is empty and its {over} sessions are over: waiting for a new one")

    def _what_for(self) -> str:
        """What an idle reader waits for; empty when there is nothing to wait for."""
        self._tracker.update(self._spool.sessions())
        # Sessions first: what a closed session has published is there when its bundles are counted after it.
        stats = self._spool.stats()
        if self._ready(stats):
            return WAITING_FOR_BUNDLES
        if stats.claimed and self._options.ranks is None:
            return WAITING_FOR_READERS
        if not self._tracker.known:
            return WAITING_FOR_SESSION
        return "" if self._tracker.all_over else WAITING_FOR_BUNDLES

    def _over(self, waiting: str, idle_since: float) -> bool:
        if waiting == WAITING_FOR_SESSION and self._summary.checked:
            # Bundles without a session file: nobody can say that more are to come, nor that none are.
            return time.monotonic() - idle_since > self._options.stale_after
        return waiting == ""

    def _ready(self, stats: SpoolStats) -> int:
        if self._options.ranks is None:
            return stats.ready
        return sum(count for rank, count in stats.ready_by_rank.items() if rank in self._options.ranks)

    def _wants(self, waiting: Waiting) -> bool:
        """Whether a bundle is selected and, where bundles stay after they are judged, has no row yet."""
        if not self._selection.wants(waiting):
            return False
        try:
            return not self._spool.keeps or waiting.header().key not in self._results
        except BundleError:
            # To be named when it is loaded.
            return True

    def _seconds_left(self, stats: SpoolStats, now: float) -> float | None:
        """What is left over the rate of the whole run, so that a slow call does not make it jump."""
        done = self._summary.rows - self._rows_before
        left = self._ready(stats) if self._selected is None else max(self._selected - done - self._engine.in_hand, 0)
        return (left + self._engine.in_hand) * (now - self._started) / done if done else None

    def _tell(self, waiting: str, *, ends: bool = False) -> None:
        now = time.monotonic()
        if now < self._tell_next:
            return
        rows = self._summary.rows
        rate = (rows - self._rows_told) / (now - self._told)
        self._told, self._rows_told = now, rows
        self._tracker.update(self._spool.sessions())
        stats = self._spool.stats()
        self._tell_next = now + max(_PROGRESS_SECONDS, _COUNTING_SHARE * (time.monotonic() - now))
        sessions = tuple(self._tracker.states)
        self._emit(
            Progress(
                self._summary,
                self._ready(stats),
                self._engine.in_hand,
                stats.quarantined,
                rate,
                sessions,
                waiting,
                self._seconds_left(stats, now) if ends else None,
            )
        )
        if now - self._tidied > _TIDY_SECONDS:
            self._spool.tidy()
            self._tidied = now
        self._views.refresh()

    def _wait_for_spool(self, error: SpoolUnavailable) -> None:
        """A share may be away for a while: nothing is lost by waiting, everything by giving up."""
        self._notice(f"{error}; trying again", level="warning")
        (self._abort if self._stop.is_set() else self._stop).wait(_RETRY_SECONDS)

    def _notice(self, text: str, level: str = "info") -> None:
        self._emit(Notice(level, text))

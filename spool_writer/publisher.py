"""The way from the training thread to the spool: a queue bounded in bytes, and threads that write.

`put` returns as soon as there is room in the queue. When the spool is slower than the training, `put` waits, at most as long as
the spool's own policy lets a call wait; then the call is dropped and counted. A spool that fails never stops the training.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable

from spool import Session, Spool, SpoolError

from .counting import Counts, log
from .records import CallRecord

_HEARTBEAT_S = 2.0
# What a record takes beside its tensors; it bounds the number of tiny ones.
_OVERHEAD = 4096


class Publisher:
    """Writes records into a spool in the background."""

    def __init__(
        self, spool: Spool, session: Session, counts: Counts, *, queue_bytes: int, threads: int, patience: float
    ) -> None:
        self._spool, self._session, self._counts = spool, session, counts
        self._limit, self._patience = queue_bytes, patience
        self._queue: deque[CallRecord] = deque()
        self._bytes = 0
        self._busy = 0
        self._closing = False
        self._changed = threading.Condition()
        self._beat_stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"spool-check-publisher-{n}", daemon=True) for n in range(threads)
        ]
        self._beater = threading.Thread(target=self._beat, name="spool-check-heartbeat", daemon=True)
        for thread in (*self._threads, self._beater):
            thread.start()

    def put(self, record: CallRecord) -> bool:
        """Queue a record; False when it was dropped for want of room."""
        size = record.nbytes + _OVERHEAD
        with self._changed:
            if self._closing:
                return False
            # One record larger than the whole queue still passes, alone.
            if self._bytes and self._bytes + size > self._limit:
                waited = self._changed.wait_for(
                    lambda: self._closing or not self._bytes or self._bytes + size <= self._limit, self._patience
                )
                if not waited or self._closing:
                    self._counts.add("dropped")
                    self._counts.trouble("queue full", f"the spool does not keep up: {record.api} was dropped")
                    return False
            self._bytes += size
            self._queue.append(record)
            self._changed.notify()
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    return
                record = self._queue.popleft()
                self._busy += 1
            try:
                self._publish(record)
            finally:
                with self._changed:
                    self._busy -= 1
                    self._bytes -= record.nbytes + _OVERHEAD
                    self._changed.notify_all()

    def _publish(self, record: CallRecord) -> None:
        try:
            bundle = record.bundle()
            published = self._spool.publish(bundle)
        except SpoolError as error:
            self._counts.add("dropped")
            self._counts.trouble(type(error).__name__, str(error))
        except Exception as error:
            self._counts.add("dropped")
            self._counts.trouble(f"publish {type(error).__name__}", f"{record.api} was not published: {error!r}")
        else:
            self._counts.add("published" if published else "dropped")
            self._counts.add("captured" if bundle.header.skip is None else "unreplayable")

    def _beat(self) -> None:
        while not self._beat_stop.wait(_HEARTBEAT_S):
            with contextlib.suppress(SpoolError):
                self._session.heartbeat(self._counts.now())

    def drain(self, timeout: float) -> bool:
        """Wait until everything queued is published; False when `timeout` seconds were not enough."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._busy, timeout)

    def close(self, state: str, timeout: float) -> None:
        """Publish what is queued, at most for `timeout` seconds, and close the session with its counts."""
        start = time.monotonic()
        if not self.drain(timeout):
            with self._changed:
                lost = len(self._queue)
                self._queue.clear()
            self._counts.add("dropped", lost)
            log.warning("%d calls could not be published within %g s and are lost", lost, time.monotonic() - start)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._beat_stop.set()
        for thread in (*self._threads, self._beater):
            thread.join(timeout=5)
        try:
            self._session.close(state, self._counts.now())
        except SpoolError as error:
            log.warning("%s", error)

    def abandon(self, report: Callable[[str], None] | None = None) -> None:
        """Forget everything, for a forked child: the threads did not come along and the queue is the parent's."""
        self._queue = deque()
        self._closing = True
        if report is not None:
            report("this process was forked from a recorded one; its calls are not recorded")

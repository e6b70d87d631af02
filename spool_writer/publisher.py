"""The way from the training thread to the spool: a queue bounded in bytes, and threads that write.

`put` returns as soon as there is room in the queue. When the spool is slower than the training, `put` waits, at most as long as
the spool's own policy lets a call wait; then the call is dropped and counted. A spool that fails never stops the training.
"""

from __future__ import annotations

import contextlib
import math
import sys
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
# One thread keeps up with small bundles, and two would only take the interpreter's lock from each other and from the training:
# each further thread begins to help when so much more is waiting.
_SHARE = 16 * 2**20
# While the training is busy with one call after another, small ones are not published behind its back, where each would cost it
# several turns of the interpreter's lock: not before it pauses so long (a wait for the device, for data, for other ranks), or
# has so much in the queue, or the oldest call has waited so long.
_PAUSE_S = 0.002
_LAZY = 16 * 2**20
_OLDEST_S = 1.0
# A training thread lets go of the interpreter's lock in every operator. To get it back from a busy publisher it would wait for
# Python's usual 5 ms, a hundred operators long.
_SWITCH_S = 5e-5


class Publisher:
    """Writes records into a spool in the background."""

    def __init__(
        self, spool: Spool, session: Session, counts: Counts, *, queue_bytes: int, threads: int, patience: float
    ) -> None:
        self._spool, self._session, self._counts = spool, session, counts
        self._limit, self._patience = queue_bytes, patience
        self._queue: deque[tuple[float, CallRecord]] = deque()
        self._bytes = 0
        self._busy = 0
        self._closing = False
        lock = threading.Lock()
        # One condition for those who wait for room or for the end of the queue, one for each publishing thread.
        self._changed = threading.Condition(lock)
        self._work = [threading.Condition(lock) for _ in range(threads)]
        self._hurry = threading.Condition(lock)
        self._drains = 0
        self._last_put = 0.0
        self._beat_stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(n,), name=f"spool-check-publisher-{n}", daemon=True)
            for n in range(threads)
        ]
        self._beater = threading.Thread(target=self._beat, name="spool-check-heartbeat", daemon=True)
        self._seconds = {"waiting": 0.0, "publishing": 0.0}
        self._written = 0
        self._switch_interval = sys.getswitchinterval()
        sys.setswitchinterval(min(_SWITCH_S, self._switch_interval))
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
                start = time.perf_counter()
                waited = self._changed.wait_for(
                    lambda: self._closing or not self._bytes or self._bytes + size <= self._limit, self._patience
                )
                self._seconds["waiting"] += time.perf_counter() - start
                if not waited or self._closing:
                    self._counts.add("dropped")
                    self._counts.trouble("queue full", f"the spool does not keep up: {record.api} was dropped")
                    return False
            self._bytes += size
            self._last_put = time.monotonic()
            self._queue.append((self._last_put, record))
            for number, work in enumerate(self._work):
                if self._bytes < number * _SHARE:
                    break
                work.notify()
        return True

    def _run(self, number: int) -> None:
        while True:
            with self._changed:
                self._work[number].wait_for(lambda: self._closing or (self._queue and self._bytes >= number * _SHARE))
                if self._queue and not self._is_time(time.monotonic()):
                    self._hurry.wait(_PAUSE_S)
                    continue
                if not self._queue:
                    return
                _, record = self._queue.popleft()
                self._busy += 1
            start = time.perf_counter()
            try:
                self._publish(record)
            finally:
                with self._changed:
                    self._seconds["publishing"] += time.perf_counter() - start
                    self._busy -= 1
                    self._bytes -= record.nbytes + _OVERHEAD
                    self._changed.notify_all()

    def _is_time(self, now: float) -> bool:
        """Whether the training is not disturbed, or must be."""
        if self._closing or self._drains or self._bytes >= _LAZY:
            return True
        return now - self._last_put >= _PAUSE_S or now - self._queue[0][0] >= _OLDEST_S

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
            if not published:
                self._counts.add("dropped")
                return
            self._counts.add("published")
            self._counts.add("captured" if bundle.header.skip is None else "unreplayable")
            with self._changed:
                self._written += record.nbytes

    def _beat(self) -> None:
        while not self._beat_stop.wait(_HEARTBEAT_S):
            with contextlib.suppress(SpoolError):
                self._session.heartbeat(self._counts.now())

    def stats(self) -> dict[str, float]:
        """Seconds that the training waited for room and that threads spent on publishing, bytes written and bytes queued."""
        with self._changed:
            seconds = {f"{name}_s": round(value, 6) for name, value in self._seconds.items()}
            return {**seconds, "published_bytes": self._written, "queued_bytes": self._bytes}

    def drain(self, timeout: float) -> bool:
        """Wait until everything queued is published; False when `timeout` seconds were not enough."""
        with self._changed:
            self._drains += 1
            self._hurry.notify_all()
            try:
                return self._changed.wait_for(lambda: not self._queue and not self._busy, timeout)
            finally:
                self._drains -= 1

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
            for condition in (self._changed, self._hurry, *self._work):
                condition.notify_all()
        self._beat_stop.set()
        for thread in (*self._threads, self._beater):
            thread.join(timeout=5)
        self._restore_switching()
        try:
            self._session.close(state, self._counts.now())
        except SpoolError as error:
            log.warning("%s", error)

    def _restore_switching(self) -> None:
        # Whoever has changed it meanwhile knows better.
        if math.isclose(sys.getswitchinterval(), _SWITCH_S, rel_tol=0.1):
            sys.setswitchinterval(self._switch_interval)

    def abandon(self, report: Callable[[str], None] | None = None) -> None:
        """Forget everything, for a forked child: the threads did not come along and the queue is the parent's."""
        self._queue = deque()
        self._closing = True
        if report is not None:
            report("this process was forked from a recorded one; its calls are not recorded")

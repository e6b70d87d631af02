"""SIGINT and SIGTERM as requests: the first finishes the bundles in hand and writes the reports, the second stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_requests(say: Callable[[str], None]) -> Iterator[tuple[threading.Event, threading.Event]]:
    """The events `stop` and `abort`, set by the first and the second signal; a third one ends the process as usual."""
    stop, abort = threading.Event(), threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if not stop.is_set():
            stop.set()
            say("stopping: the bundles in hand are finished first; once more stops at once")
        elif not abort.is_set():
            abort.set()
            say("stopping at once: what is in hand goes back to the spool")
        else:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop, abort
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

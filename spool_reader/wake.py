"""File system events that shorten the wait for the next bundle; the listing stays the truth."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path

from watchdog.events import FileCreatedEvent, FileMovedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

from spool import Spool

_BUSY_SECONDS = 1.0


class _Hint(FileSystemEventHandler):
    """Sets an event, and nothing that could raise: an error in a handler would end watchdog's thread for good."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def on_any_event(self, event: FileSystemEvent) -> None:
        self._wake()


class Waker:
    """Wakes a spool when a file appears in its folder, while its reader is idle.

    A busy reader needs no events, and its own claims would make most of them. Where events fail, the spool's own polling
    has to do.
    """

    def __init__(self, spool: Spool, say: Callable[[str], None]) -> None:
        self._spool = spool
        self._say = say
        self._folder = Path(spool.url)
        self._observer: BaseObserver | None = None
        self._watch: ObservedWatch | None = None
        self._idle_at = 0.0
        if self._folder.is_dir():
            self._start()

    def idle(self) -> None:
        """The reader found nothing to do."""
        self._idle_at = time.monotonic()
        if self._observer is not None and self._watch is None:
            try:
                with warnings.catch_warnings():
                    # watchdog warns when a folder is made while it registers the tree; it has it all the same.
                    warnings.simplefilter("ignore", RuntimeWarning)
                    self._watch = self._observer.schedule(
                        _Hint(self._spool.wake.set),
                        str(self._folder),
                        recursive=True,
                        event_filter=[FileCreatedEvent, FileMovedEvent],
                    )
            except (OSError, RuntimeError) as error:
                self._give_up(error)

    def busy(self) -> None:
        """The reader has something to do."""
        if self._observer is not None and self._watch is not None and time.monotonic() - self._idle_at > _BUSY_SECONDS:
            self._observer.unschedule(self._watch)
            self._watch = None

    def close(self) -> None:
        """No more events."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()
            self._observer = None

    def _start(self) -> None:
        observer = Observer()
        try:
            observer.start()
        except (OSError, RuntimeError) as error:
            self._give_up(error)
        else:
            self._observer = observer

    def _give_up(self, error: Exception) -> None:
        self._say(f"no file system events for {self._folder} ({error}): new bundles are found by polling")
        self.close()

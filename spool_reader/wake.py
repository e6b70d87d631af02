"""File system events that shorten the wait for the next bundle; the listing stays the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from watchdog.events import FileCreatedEvent, FileMovedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer


class _Hint(FileSystemEventHandler):
    """Sets an event, and nothing that could raise: an error in a handler would end watchdog's thread for good."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def on_any_event(self, event: FileSystemEvent) -> None:
        self._wake()


@contextmanager
def waking(folder: Path | None, wake: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    """Call `wake` when a file appears below the folder; without watchdog the spool's own polling has to do."""
    if folder is None:
        yield
        return
    observer = Observer()
    try:
        observer.schedule(_Hint(wake), str(folder), recursive=True, event_filter=[FileCreatedEvent, FileMovedEvent])
        observer.start()
    except (OSError, RuntimeError) as error:
        say(f"no file system events for {folder} ({error}): new bundles are found by polling")
        yield
        return
    try:
        yield
    finally:
        observer.stop()
        observer.join()

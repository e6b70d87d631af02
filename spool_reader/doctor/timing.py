"""When a reader sees what another process has written, whether events tell it, and what the clocks say."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from watchdog.events import FileCreatedEvent, FileMovedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from spool.files import is_network

from .findings import Finding, ok, warn

_PATIENCE_S = 5.0
_SLOW_S = 1.0
_CLOCK_S = 5.0
_WRITER = """
import os, sys, time
part, whole = os.path.join(sys.argv[1], ".part"), os.path.join(sys.argv[1], "whole")
with open(part, "w") as file:
    file.write("x")
os.rename(part, whole)
"""


class _Seen(FileSystemEventHandler):
    def __init__(self) -> None:
        self.moment = threading.Event()

    def on_any_event(self, event: FileSystemEvent) -> None:
        self.moment.set()


def timing_checks(scratch: Path) -> Iterator[Finding]:
    """Visibility, events, clock; of files that another process of this host makes."""
    folder = scratch / "seen"
    folder.mkdir()
    seen = _Seen()
    observer = Observer()
    observer.schedule(seen, str(folder), recursive=True, event_filter=[FileCreatedEvent, FileMovedEvent])
    try:
        observer.start()
        why = ""
    except OSError as error:
        why = f" ({error.strerror or error})"
    try:
        os.listdir(folder)
        subprocess.run([sys.executable, "-S", "-c", _WRITER, str(folder)], check=True, timeout=60)
        start = time.monotonic()
        while "whole" not in os.listdir(folder) and time.monotonic() - start < _PATIENCE_S:
            time.sleep(0.005)
        delay = time.monotonic() - start
        events = not why and seen.moment.wait(_SLOW_S)
    finally:
        if not why:
            observer.stop()
            observer.join()
    yield _visibility(delay)
    yield _events(folder, events, why)
    yield _clock(folder / "whole")


def _visibility(delay: float) -> Finding:
    text = f"a file that another process of this host renamed into place is listed after {delay * 1000:.0f} ms"
    if delay < _SLOW_S:
        return ok("visibility", text)
    return warn(
        "visibility", text, "bundles are judged that much later; mount with lookupcache=positive or a short actimeo"
    )


def _events(folder: Path, events: bool, why: str) -> Finding:
    if is_network(folder):
        return ok("events", "polling: events of other hosts do not arrive on a network file system")
    if events:
        return ok("events", "file system events arrive; folders are listed now and then all the same")
    return warn(
        "events",
        f"no file system events{why}: new bundles are found by polling",
        "raise fs.inotify.max_user_watches and max_user_instances, or leave it: polling costs up to a second",
    )


def _clock(path: Path) -> Finding:
    try:
        difference = path.stat().st_mtime - time.time()
    except OSError as error:
        return warn(
            "clock", f"{path.name}: {error.strerror}", "the file system lost a file that was just made: check it"
        )
    text = (
        f"the file system's clock is {abs(difference):.1f} s {'ahead of' if difference > 0 else 'behind'} this host's"
    )
    if abs(difference) < _CLOCK_S:
        return ok("clock", text)
    return warn("clock", text, "run NTP on both; spool-check compares no clocks of two hosts, other tools do")

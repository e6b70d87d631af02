"""How many calls were seen, recorded, left out and lost; and one log line for each kind of trouble, not one for each call."""

from __future__ import annotations

import logging
import threading
from collections import Counter

from spool.interface import COUNTS

log = logging.getLogger("spool_check")


class Counts:
    """Counters of one session; safe to use from several threads."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def add(self, name: str, count: int = 1) -> None:
        """Count something of the kind `name`."""
        with self._lock:
            self._counts[name] += count

    def trouble(self, kind: str, message: str) -> None:
        """Count an error, and log its kind the first time."""
        with self._lock:
            self._counts["errors"] += 1
            first = kind not in self._said
            self._said.add(kind)
        if first:
            log.warning("%s (further ones of this kind are only counted)", message)

    def now(self) -> dict[str, int]:
        """All counters."""
        with self._lock:
            return {name: self._counts[name] for name in COUNTS}

"""Numbers of calls: `seq` over all calls of a step, and how often each API was called in it before.

Every call is numbered, recorded or not, so that names are the same with filters on and off.
"""

from __future__ import annotations

import threading
from collections import defaultdict


class Numbering:
    """Counts the calls of one process, step by step; safe to use from several threads."""

    def __init__(self) -> None:
        self.step = 0
        self._seq = 0
        self._calls: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._lock = threading.Lock()

    def next(self, kind: str, base: str) -> tuple[int, int, str]:
        """Step, seq and full name of the next call of `kind.base`."""
        with self._lock:
            seq = self._seq
            self._seq = seq + 1
            number = self._calls[kind, base]
            self._calls[kind, base] = number + 1
            return self.step, seq, f"{kind}.{base}.{number}"

    def new_step(self) -> None:
        """Go on to the next step; its calls count from zero."""
        with self._lock:
            self.step += 1
            self._seq = 0
            self._calls.clear()

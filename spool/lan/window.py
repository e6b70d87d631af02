"""What a sender holds until it is durable on the other side: bounded, in order, kept over lost connections."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..codec import Buffer
from ..options import SpoolOptions
from ..room import SAMPLE_EVERY
from .limits import SenderLimits


@dataclass
class Sent:
    """One bundle that is not acknowledged yet: the frame's beginning, and views of the tensors' own memory."""

    number: int
    start: bytes
    buffers: Sequence[Buffer]
    size: int
    refusals: int = 0


class Window:
    """Unacknowledged bundles of one session. `send` takes from it, `acknowledge` frees, `rewind` starts again after a loss."""

    def __init__(self, limits: SenderLimits, options: SpoolOptions) -> None:
        self._limits, self._options = limits, options
        self._kept: deque[Sent] = deque()
        self._bytes = 0
        self._sent = 0
        self._full_calls = 0
        self._number = 0
        self.closed = False
        self.moved_at = time.monotonic()
        self.changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._kept)

    def room(self, size: int) -> bool:
        """Wait for room by the policy; False when the bundle is to be dropped. The caller holds `changed`."""
        if self._fits(size):
            return not self.closed
        self._full_calls += 1
        policy = self._options.when_full
        if policy == "drop" or (policy == "sample" and self._full_calls % SAMPLE_EVERY != 1):
            return False
        self.changed.wait_for(lambda: self.closed or self._fits(size), self._options.block_timeout)
        return self._fits(size) and not self.closed

    def _fits(self, size: int) -> bool:
        # One bundle larger than the whole window goes alone.
        if not self._kept:
            return True
        return len(self._kept) < self._limits.window_bundles and self._bytes + size <= self._limits.window_bytes

    def next_number(self) -> int:
        """The number of the bundle that `add` will get next. The caller holds `changed`."""
        return self._number + 1

    def add(self, item: Sent) -> None:
        """Keep a bundle. The caller holds `changed`."""
        self._number = item.number
        if not self._kept:
            self.moved_at = time.monotonic()
        self._kept.append(item)
        self._bytes += item.size

    def take(self, bundles: int, size: int) -> list[Sent]:
        """The next bundles to send, at least one if there is any."""
        found: list[Sent] = []
        with self.changed:
            while self._sent < len(self._kept) and len(found) < bundles and size > 0:
                found.append(self._kept[self._sent])
                size -= found[-1].size
                self._sent += 1
        return found

    @property
    def unsent(self) -> bool:
        """Whether `take` would find something."""
        return self._sent < len(self._kept)

    def acknowledge(self, number: int) -> None:
        """Everything up to `number` is durable on the other side."""
        with self.changed:
            moved = False
            while self._kept and self._kept[0].number <= number:
                self._bytes -= self._kept.popleft().size
                self._sent = max(0, self._sent - 1)
                moved = True
            if moved:
                self.moved_at = time.monotonic()
                self.changed.notify_all()

    def rewind(self) -> None:
        """A new connection: everything that is kept goes again."""
        with self.changed:
            self._sent = 0

    def refused(self, number: int, most: int) -> bool:
        """Count a refusal of one bundle; after `most` it is dropped, and True says so."""
        with self.changed:
            for item in self._kept:
                if item.number == number:
                    item.refusals += 1
                    if item.refusals < most:
                        return False
                    self._kept.remove(item)
                    self._bytes -= item.size
                    self._sent = 0
                    self.changed.notify_all()
                    return True
        return False

    def shut(self) -> None:
        """No bundle follows and nobody waits any longer."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

"""What judges tasks: the interface, and the peer that does it in this very process."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from .answers import Answer, Task, answer
from .device import open_device
from .judging import Judge, JudgeOptions

# A batch is as much as takes about this long, so that stopping and sharing stay quick.
BATCH_SECONDS = 0.1
LARGEST_BATCH = 64


class Pool(Protocol):
    """Takes tasks and gives answers, in any order.

    Attributes:
        devices: what each worker judges on.
        processes: how many worker processes there are; 0 is this process.
    """

    devices: tuple[str, ...]
    processes: int

    @property
    def room(self) -> int:
        """How many more tasks keep it busy."""

    @property
    def in_hand(self) -> int:
        """Tasks without an answer."""

    def submit(self, tasks: Iterable[Task]) -> None:
        """Take tasks."""

    def collect(self, timeout: float) -> list[Answer]:
        """Answers that have come, waiting for the first of them."""

    def close(self) -> None:
        """End at once; tasks in hand get no answer."""


class InProcess:
    """Judges in this process, a little at a time; a call that kills its process kills the reader."""

    def __init__(self, device_name: str, options: JudgeOptions) -> None:
        self.devices: tuple[str, ...] = (device_name,)
        self.processes = 0
        self._judge = Judge(open_device(device_name), options)
        self._options = options
        self._tasks: deque[Task] = deque()

    @property
    def room(self) -> int:
        return LARGEST_BATCH - len(self._tasks)

    @property
    def in_hand(self) -> int:
        return len(self._tasks)

    def submit(self, tasks: Iterable[Task]) -> None:
        self._tasks.extend(tasks)

    def collect(self, timeout: float) -> list[Answer]:
        answers: list[Answer] = []
        end = time.monotonic() + BATCH_SECONDS
        with warnings.catch_warnings():
            # What a recorded call is warned about was said in the training already.
            warnings.simplefilter("ignore")
            while self._tasks and time.monotonic() < end:
                answers.append(answer(self._tasks.popleft(), self._judge, self._options.save_errors))
        return answers

    def close(self) -> None:
        self._tasks.clear()

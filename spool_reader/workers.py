"""Worker processes and their supervision.

A worker that dies costs the bundle it was on one attempt; the others that it held go to the next worker. One that
stays on a bundle for longer than the call timeout is killed and counts as dead. A worker that cannot even start is an
error of the environment and costs no bundle anything.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_longlong
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from spool import SpoolError

from .answers import Answer, Died, Task
from .judging import JudgeOptions
from .pool import BATCH_SECONDS, LARGEST_BATCH
from .worker_main import IDLE, work

_START_SECONDS = 300.0
_START_FAILURES = 3


@dataclass
class _Worker:
    """One process as its parent sees it."""

    device: str
    process: SpawnProcess
    connection: Connection[Any, Any]
    current: c_longlong
    ready: bool = False
    held: dict[int, Task] = field(default_factory=dict)
    pace: float = 0.02
    seen: tuple[int, float] = (IDLE, 0.0)
    asked: float = 0.0


class WorkerPool:
    """Processes, one for each device name given."""

    def __init__(
        self, devices: Sequence[str], options: JudgeOptions, *, call_timeout: float = 300.0, depth: int = 2
    ) -> None:
        self._options = replace(options, threads=options.threads or max(1, torch.get_num_threads() // len(devices)))
        self.devices, self.processes = tuple(devices), len(devices)
        self._call_timeout = call_timeout
        # Batches that one worker holds: the one it is on, and one so that it never waits for its parent.
        self._depth = depth
        self._pending: deque[Task] = deque()
        self._start_failures = 0
        self._context = multiprocessing.get_context("spawn")
        self._workers = [self._start(device) for device in devices]

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._workers if worker.process.pid is not None]

    @property
    def room(self) -> int:
        wanted = sum(_batch_size(worker) * self._depth for worker in self._workers)
        return wanted - self.in_hand

    @property
    def in_hand(self) -> int:
        return len(self._pending) + sum(len(worker.held) for worker in self._workers)

    def submit(self, tasks: Iterable[Task]) -> None:
        self._pending.extend(tasks)
        self._hand_out()

    def collect(self, timeout: float) -> list[Answer]:
        waiting: list[Any] = [worker.connection for worker in self._workers]
        waiting += [worker.process.sentinel for worker in self._workers]
        ready = set(wait(waiting, timeout))
        answers: list[Answer] = []
        for index, worker in enumerate(self._workers):
            alive = True
            if worker.connection in ready:
                alive = self._receive(worker, answers)
            if not alive or worker.process.sentinel in ready:
                self._workers[index] = self._bury(worker, answers)
            elif reason := self._stuck(worker):
                worker.process.kill()
                worker.process.join()
                self._workers[index] = self._bury(worker, answers, reason)
        self._hand_out()
        return answers

    def close(self) -> None:
        for worker in self._workers:
            worker.connection.close()
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.process.close()
        self._workers.clear()
        self._pending.clear()

    def _start(self, device: str) -> _Worker:
        ours, theirs = self._context.Pipe()
        current = self._context.RawValue(c_longlong, IDLE)
        process = self._context.Process(
            target=work, args=(theirs, current, device, self._options), name=f"spool-check worker {device}", daemon=True
        )
        with _requests_held():
            process.start()
        theirs.close()
        return _Worker(device, process, ours, current, asked=time.monotonic())

    def _receive(self, worker: _Worker, answers: list[Answer]) -> bool:
        """Everything that the worker has sent; False when its end of the pipe is closed."""
        try:
            while worker.connection.poll():
                message = worker.connection.recv()
                if not worker.ready:
                    if message is not None:
                        raise SpoolError(f"a worker for {worker.device} cannot start: {message}")
                    worker.ready, self._start_failures = True, 0
                    continue
                now = time.monotonic()
                if message:
                    pace = (now - worker.asked) / len(message)
                    worker.pace += 0.3 * (pace - worker.pace)
                worker.asked = now
                for item in message:
                    del worker.held[item.ticket]
                answers.extend(message)
        except (EOFError, ConnectionError):
            return False
        return True

    def _bury(self, worker: _Worker, answers: list[Answer], reason: str | None = None) -> _Worker:
        """Settle a dead worker's tasks and start another in its place."""
        self._receive(worker, answers)
        worker.process.join()
        code = worker.process.exitcode
        if not worker.ready:
            self._start_failures += 1
            if self._start_failures >= _START_FAILURES:
                raise SpoolError(
                    f"a worker for {worker.device} ended with status {code} before it was ready, "
                    f"{_START_FAILURES} times; --workers 0 judges in this process and shows why"
                )
        current = worker.current.value
        if current in worker.held:
            del worker.held[current]
            answers.append(Died(current, reason or _cause(code)))
        self._pending.extendleft(reversed(worker.held.values()))
        worker.connection.close()
        worker.process.close()
        return self._start(worker.device)

    def _stuck(self, worker: _Worker) -> str | None:
        """Why a worker must be ended, if it must."""
        now = time.monotonic()
        if not worker.ready:
            if now - worker.asked > _START_SECONDS:
                return f"did not start within {_START_SECONDS:.0f} s"
            return None
        current = worker.current.value
        if current != worker.seen[0] or current == IDLE:
            worker.seen = (current, now)
        elif now - worker.seen[1] > self._call_timeout:
            return f"took longer than {self._call_timeout:.0f} s"
        return None

    def _hand_out(self) -> None:
        for worker in self._workers:
            if not worker.ready:
                continue
            while self._pending and len(worker.held) < _batch_size(worker) * (self._depth - 1) + 1:
                count = min(_batch_size(worker), len(self._pending))
                batch = [self._pending.popleft() for _ in range(count)]
                if not worker.held:
                    worker.asked = time.monotonic()
                worker.held.update((task.ticket, task) for task in batch)
                try:
                    worker.connection.send(batch)
                except (BrokenPipeError, ConnectionError):
                    # It is dead; `collect` finds that out and hands the batch to its successor.
                    break


@contextmanager
def _requests_held() -> Iterator[None]:
    """A process started in here never sees Ctrl-C or SIGTERM, which reach the whole group: its parent decides its end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _batch_size(worker: _Worker) -> int:
    """As many as take about a tenth of a second, so that stopping and sharing stay quick."""
    return max(1, min(LARGEST_BATCH, int(BATCH_SECONDS / max(worker.pace, 1e-6))))


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed its worker process (signal {-code})"
    return f"ended its worker process (status {code})"

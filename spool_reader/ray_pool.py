"""Judging on a Ray cluster: actors load claimed files from the shared spool and answer; claims and rows stay with this process.

An actor that dies takes its batch along, and nobody can tell which bundle it was on. The bundles of that batch are therefore
handed out again one by one: the one on which an actor dies while it has no other is charged an attempt, as on one host.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from spool import SpoolError

from .answers import Answer, Died, Task
from .judging import JudgeOptions
from .pool import BATCH_SECONDS, LARGEST_BATCH
from .ray_cluster import check, join, places
from .ray_worker import RayWorker

_START_SECONDS = 300.0
_START_FAILURES = 3
# Batches in one actor's queue: the one it is on, and one so that it never waits for this process.
_DEPTH = 2


@dataclass
class _Batch:
    tasks: list[Task]
    future: Any


@dataclass
class _Actor:
    """One actor as this process sees it; `starting` is set until it has answered for the first time."""

    handle: Any
    starting: Any
    batches: deque[_Batch] = field(default_factory=deque)
    pace: float = 0.02
    asked: float = field(default_factory=time.monotonic)

    @property
    def next_future(self) -> Any:
        """What its next news will be; None when nothing is asked of it."""
        return self.starting or (self.batches[0].future if self.batches else None)

    @property
    def batch_size(self) -> int:
        """As many as take about a tenth of a second."""
        return max(1, min(LARGEST_BATCH, int(BATCH_SECONDS / max(self.pace, 1e-6))))


class RayPool:
    """Actors on an existing cluster."""

    def __init__(
        self, address: str, device: str, workers: int | None, options: JudgeOptions, *, call_timeout: float
    ) -> None:
        check(device, workers)
        self._ray = join(address)
        try:
            kind, resource, count = places(self._ray, device, workers)
            self._kind, self._options, self._call_timeout = (
                kind,
                replace(options, threads=options.threads or 1),
                call_timeout,
            )
            needs: dict[str, Any] = {"CPU": {"num_cpus": 1}, "GPU": {"num_cpus": 1, "num_gpus": 1}}.get(
                resource, {"num_cpus": 1, "resources": {resource: 1}}
            )
            self._class = self._ray.remote(**needs)(RayWorker)
            self.devices = (f"{kind} (Ray)",) * count
            self.processes = count
            self._pending: deque[Task] = deque()
            self._suspects: deque[Task] = deque()
            self._start_failures = 0
            self._actors = [self._start() for _ in range(count)]
        except BaseException:
            self._ray.shutdown()
            raise

    @property
    def room(self) -> int:
        return sum(actor.batch_size * _DEPTH for actor in self._actors) - self.in_hand

    @property
    def in_hand(self) -> int:
        held = sum(len(batch.tasks) for actor in self._actors for batch in actor.batches)
        return len(self._pending) + len(self._suspects) + held

    def submit(self, tasks: Iterable[Task]) -> None:
        self._pending.extend(tasks)
        self._hand_out()

    def collect(self, timeout: float) -> list[Answer]:
        waiting = [actor.next_future for actor in self._actors if actor.next_future is not None]
        ready = set(self._ready(waiting, timeout))
        answers: list[Answer] = []
        for index, actor in enumerate(self._actors):
            if actor.next_future in ready:
                alive, why = self._receive(actor, answers), ""
            else:
                why = self._stuck(actor)
                alive = not why
            if not alive:
                self._actors[index] = self._bury(actor, answers, why)
        self._hand_out()
        return answers

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor.handle)
        self._actors.clear()
        self._pending.clear()
        self._suspects.clear()
        self._ray.shutdown()

    def _ready(self, futures: list[Any], timeout: float) -> list[Any]:
        """Those that have come, waiting for the first of them."""
        if not futures:
            time.sleep(timeout)
            return []
        first, rest = self._ray.wait(futures, num_returns=1, timeout=timeout)
        more = self._ray.wait(rest, num_returns=len(rest), timeout=0)[0] if first and rest else []
        return [*first, *more]

    def _start(self) -> _Actor:
        handle = self._class.remote(self._kind, self._options)
        return _Actor(handle, handle.ready.remote())

    def _receive(self, actor: _Actor, answers: list[Answer]) -> bool:
        """The news of an actor; False when it has died."""
        errors = self._ray.exceptions
        try:
            found = self._ray.get(actor.next_future)
        except errors.RayActorError as error:
            if actor.starting is not None:
                self._start_failures += 1
                if self._start_failures >= _START_FAILURES:
                    raise SpoolError(
                        f"no worker starts on the Ray cluster: {_said(error)}; is spool-check installed on its nodes, in this "
                        "version, and are the files that the options name visible there?"
                    ) from error
            return False
        except errors.RayError as error:
            raise SpoolError(
                f"the Ray cluster failed: {_said(error)}; the claimed bundles go back to the spool"
            ) from error
        if actor.starting is not None:
            actor.starting, self._start_failures = None, 0
            return True
        batch = actor.batches.popleft()
        now = time.monotonic()
        actor.pace += 0.3 * ((now - actor.asked) / len(batch.tasks) - actor.pace)
        actor.asked = now
        answers.extend(found)
        return True

    def _bury(self, actor: _Actor, answers: list[Answer], why: str) -> _Actor:
        """Settle a dead actor's batches and start another in its place."""
        self._ray.kill(actor.handle)
        if actor.batches:
            first = actor.batches.popleft()
            if len(first.tasks) == 1:
                answers.append(Died(first.tasks[0].ticket, why or "ended its worker on the Ray cluster"))
            else:
                self._suspects.extend(first.tasks)
            for batch in reversed(actor.batches):
                self._pending.extendleft(reversed(batch.tasks))
        return self._start()

    def _stuck(self, actor: _Actor) -> str:
        """Why an actor must be ended, if it must."""
        waited = time.monotonic() - actor.asked
        if actor.starting is not None:
            if waited > _START_SECONDS:
                raise SpoolError(
                    f"the Ray cluster has given no worker within {_START_SECONDS:.0f} s; see in `ray status` what holds its "
                    "resources, or ask for fewer with --workers"
                )
            return ""
        if actor.batches and waited > self._call_timeout * len(actor.batches[0].tasks):
            return f"took longer than {self._call_timeout:.0f} s"
        return ""

    def _hand_out(self) -> None:
        for actor in self._actors:
            if actor.starting is not None:
                continue
            if self._suspects:
                if not actor.batches:
                    self._ask(actor, [self._suspects.popleft()])
                continue
            while self._pending and len(actor.batches) < _DEPTH:
                count = min(actor.batch_size, len(self._pending))
                self._ask(actor, [self._pending.popleft() for _ in range(count)])

    def _ask(self, actor: _Actor, tasks: list[Task]) -> None:
        if not actor.batches:
            actor.asked = time.monotonic()
        actor.batches.append(_Batch(tasks, actor.handle.judge.remote(tasks)))


def _said(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{lines[0]} … {lines[-1]}"[:400] if len(lines) > 1 else "".join(lines)[:400]

"""Which forward call made which node of the autograd graph.

Every node takes the next number of its thread's counter when it is made, so the nodes of one call are an interval. A call that
makes none is kept too, as an empty interval: reentrant checkpointing runs a region without a graph first and with one later, and
the second run is matched with the first by the order of its calls.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

# The counter of this thread: the number that the next node will take.
next_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
Name = tuple[str, str]


# A training that never ends a step must not fill the memory; the oldest calls are forgotten first.
_MOST = 1_000_000
# How many calls of a first run a second one may leave out at one place, before its next call counts as none of the first's.
_AHEAD = 8


class _Calls:
    """The calls of one thread, in order: first number, number after the last, name."""

    def __init__(self, *, engine: bool) -> None:
        # Whether the thread is one of the engine's: its numbers have nothing to do with those of the training's threads.
        self.engine = engine
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.names: list[tuple[str | None, Name | None]] = []

    def add(self, start: int, end: int, api: str | None, name: Name | None) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self.names.append((api, name))
        if len(self.names) > _MOST:
            for kept in (self.starts, self.ends, self.names):
                del kept[: _MOST // 2]

    def maker_of(self, number: int) -> str | None:
        at = bisect_right(self.starts, number) - 1
        return self.names[at][0] if at >= 0 and number < self.ends[at] else None


class _Here(threading.local):
    """What a thread knows: how deep in nested backwards it is, how many nodes it had made when last asked, and at which
    place of the first run a node is that runs its forward again."""

    depth = 0
    number = 0
    repeated = (-1, 0)


class Origins:
    """The forward calls of the current step, by the graph nodes that they made; safe to use from several threads.

    A graph that lives on into the next step has no origins there: the names of calls would be those of another step.
    """

    def __init__(self) -> None:
        self._threads: dict[int, _Calls] = {}
        self._here = _Here()

    def new_step(self) -> None:
        """Forget the calls so far."""
        self._threads = {}

    def note(self, start: int, end: int, api: str, name: Name) -> None:
        """The nodes from `start` up to, not including, `end` of this thread were made by `api`, a call of `name`."""
        self._calls(engine=False).add(start, end, api, name)

    def note_in_backward(self, api: str | None) -> None:
        """The nodes that this thread has made since it was last asked belong to `api`."""
        number = next_number()
        since = self._here.number
        if since < number:
            self._calls(engine=True).add(since, number, api, None)
            self._here.number = number

    def note_repeated(self, api: str, name: Name) -> None:
        """`api` has run again; if still without a graph, it will run once more, for a region within the region."""
        if not torch.is_grad_enabled():
            number = next_number()
            self._calls(engine=True).add(number, number, api, name)

    def _calls(self, *, engine: bool) -> _Calls:
        thread = threading.get_ident()
        calls = self._threads.get(thread)
        if calls is None:
            calls = self._threads[thread] = _Calls(engine=engine)
        return calls

    def maker_of(self, number: int) -> str | None:
        """The call that made the node with this number; None where that is not known for certain."""
        own = self._threads.get(threading.get_ident())
        if own is not None and self._here.depth:
            found = own.maker_of(number)
            if found is not None:
                return found
        makers = {calls.maker_of(number) for calls in [*self._threads.values()]} - {None}
        return makers.pop() if len(makers) == 1 else None

    @contextmanager
    def nested(self) -> Iterator[None]:
        """A backward inside a backward, as checkpointing runs it: its graph is this thread's own."""
        self._here.depth += 1
        try:
            yield
        finally:
            self._here.depth -= 1

    def first_run(self, number: int, name: Name) -> str | None:
        """The call of the first, graphless run that this call `name` inside the node `number` repeats; None if unknown."""
        node, after = self._here.repeated
        for calls in [*self._threads.values()]:
            at = after if node == number else bisect_left(calls.starts, number + 1)
            last = min(at + _AHEAD, len(calls.starts))
            # Not all of them are empty: autocast makes nodes of its own when it casts parameters.
            while at < last:
                api, called = calls.names[at]
                at += 1
                if called == name:
                    self._here.repeated = (number, at)
                    return api
        return None

    @contextmanager
    def backward(self) -> Iterator[None]:
        """A backward, entered from the training; what the engine's own threads made for it is forgotten at its end."""
        self._here.number = next_number()
        try:
            yield
        finally:
            self._threads = {thread: calls for thread, calls in self._threads.items() if not calls.engine}

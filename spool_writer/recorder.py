"""What happens to one recorded call: it is numbered, what it may overwrite is copied, it runs, the rest is copied."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .before import Before
from .counting import Counts
from .device import device_of
from .filters import Filters
from .mutation import Argument
from .names import Name
from .numbering import Numbering
from .origins import Origins, next_number
from .pool import Pool
from .records import CallRecord
from .snapshot import Snapshots, unseen

_NOTHING: Mapping[str, Any] = {}
Call = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def _call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


@dataclass(slots=True)
class _Place:
    """Where a call stands: step, number in the step, full name, phase, and the forward call that a gradient belongs to."""

    step: int
    seq: int
    api: str
    phase: str
    origin: str | None


class Recorder:
    """Turns one call into a record: numbers it, copies what it needs, runs it, hands the copies on.

    `hand_on` takes the finished record. An error of the call itself passes through unchanged and leaves no record; an error of
    ours makes it a call that cannot be replayed and never reaches the training, unless `strict`. Once `silent`, it lets every
    call pass: for modes that stand on the stacks of other threads, or of a forked child, and that nobody can take off there.
    """

    silent = False

    def __init__(
        self,
        *,
        session: str,
        rank: int,
        producer: Mapping[str, Any],
        filters: Filters,
        numbering: Numbering,
        counts: Counts,
        hand_on: Callable[[CallRecord], object],
        pool: Pool,
        strict: bool,
    ) -> None:
        self._session, self._rank, self._producer = session, rank, producer
        self._filters, self._numbering, self._counts = filters, numbering, counts
        self._hand_on, self._pool, self._strict = hand_on, pool, strict
        self.origins = Origins()
        # Seconds spent on copies and on what belongs to them, the calls themselves not counted.
        self.seconds = 0.0
        self._producers: dict[str, Mapping[str, Any]] = {}

    def new_step(self) -> None:
        """The graphs of the last step are done with."""
        self.origins.new_step()

    def forward(self, name: Name, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run `func`, a call of torch's API, and record it."""
        place = self._place(name, "forward", None)
        first = next_number()
        result = self._run(place, name, func, args, kwargs, _call)
        self.origins.note(first, next_number(), place.api, name)
        return result

    def backward(
        self,
        name: Name,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        origin: str | None,
        call: Call,
    ) -> Any:
        """Run `func`, an operator that a backward runs for `origin`, by `call`, and record it."""
        return self._run(self._place(name, "backward", origin), name, func, args, kwargs, call)

    def _place(self, name: Name, phase: str, origin: str | None) -> _Place:
        self._counts.add("seen")
        return _Place(*self._numbering.next(*name), phase, origin)

    def _run(
        self,
        place: _Place,
        name: Name,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        call: Call,
    ) -> Any:
        if not self._filters.wants(place.api):
            self._counts.add("filtered")
            return call(func, args, kwargs)
        before = None
        start = time.perf_counter()
        try:
            before = Before(self._pool, place.phase, func, name[1], args, kwargs)
        except Exception as error:
            self._failed(place, error)
        begun = time.perf_counter()
        result = call(func, args, kwargs)
        ended = time.perf_counter()
        if before is not None:
            try:
                self._record(place, before, args, kwargs, result)
            except Exception as error:
                self._failed(place, error)
        self.seconds += begun - start + time.perf_counter() - ended
        return result

    def _failed(self, place: _Place, error: Exception) -> None:
        """An error of ours: the call still gets its row, and the training does not hear of it."""
        if self._strict:
            raise error
        self._counts.trouble(f"capture {type(error).__name__}", f"{place.api} could not be recorded: {error!r}")
        try:
            # Nothing is asked of torch again: the question may be what has failed.
            self._send(place, _NOTHING, "unknown", skip=f"spool-check failed to record it: {error!r}")
        except Exception:
            self._counts.add("dropped")

    def _record(
        self, place: _Place, before: Before, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        mutated = {}
        with unseen():
            after = Snapshots(self._pool, grad=place.phase == "forward")
            old = before.values
            if old:
                new_args = tuple(old[i] if i in old else after.of(value) for i, value in enumerate(args))
                new_kwargs = {key: old[key] if key in old else after.of(value) for key, value in kwargs.items()}
                for key in before.written:
                    mutated[_path(key)] = after.of(args[key] if isinstance(key, int) else kwargs[key])
            else:
                new_args = tuple(map(after.of, args))
                new_kwargs = {key: after.of(value) for key, value in kwargs.items()} if kwargs else {}
            new_result = after.of(result)
            skip = before.surprise()
            events = (*before.events, *after.events())
        device = device_of((result, args, kwargs)) or str(torch.get_default_device())
        if skip is not None:
            self._send(place, before.context, device, skip=skip)
        else:
            nbytes = before.nbytes + after.nbytes
            self._send(place, before.context, device, new_args, new_kwargs, new_result, mutated, nbytes, events)

    def _send(
        self,
        place: _Place,
        context: Mapping[str, Any],
        device: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = _NOTHING,
        result: Any = None,
        mutated: Mapping[str, Any] = _NOTHING,
        nbytes: int = 0,
        events: tuple[Any, ...] = (),
        skip: str | None = None,
    ) -> None:
        self._hand_on(
            CallRecord(
                session=self._session,
                rank=self._rank,
                step=place.step,
                seq=place.seq,
                api=place.api,
                phase=place.phase,
                args=args,
                kwargs=kwargs,
                result=result,
                mutated=mutated,
                context=context,
                producer=self._on_device(device),
                time=time.time(),
                nbytes=nbytes,
                events=events,
                origin=place.origin,
                skip=skip,
            )
        )

    def _on_device(self, device: str) -> Mapping[str, Any]:
        producer = self._producers.get(device)
        if producer is None:
            producer = self._producers[device] = {**self._producer, "device": device}
        return producer


def _path(argument: Argument) -> str:
    return f"args[{argument}]" if isinstance(argument, int) else f"kwargs.{argument}"

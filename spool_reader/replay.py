"""One recorded call, run again: on the reference device in its own dtypes, and on the CPU in raised precision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from spool import Bundle, NotReplayable

from .allowlist import Target
from .call_arguments import may_write, prepared
from .device import Device
from .precision import (
    AS_RECORDED,
    IN_SINGLE,
    WIDE_INTS,
    Casts,
    cast_like,
    golden_casts,
    has_low_precision,
    has_narrow_ints,
    with_wide_ints,
)
from .surroundings import recorded_autocast, recorded_default_dtype, surroundings
from .trees import at_path, map_leaves, tensors

# What a call raises for its own reasons; anything else is a fault of this tool and must not become a skip row.
FAILURES = (
    RuntimeError,
    TypeError,
    ValueError,
    IndexError,
    LookupError,
    ArithmeticError,
    AssertionError,
    AttributeError,
)


@dataclass(frozen=True)
class Outcome:
    """What one run gave, on the CPU.

    Attributes:
        result: what the call returned.
        mutated: what it left in each argument that the record names as written, by path.
        device: where it ran.
        notes: how the run differed from the recorded call, for the row.
    """

    result: Any
    mutated: dict[str, Any]
    device: str
    notes: tuple[str, ...] = ()


class Replay:
    """The runs of one bundle's call; the bundle's own tensors are never written to."""

    def __init__(self, bundle: Bundle, target: Target) -> None:
        self._target = target
        self.args: tuple[Any, ...] = bundle.args
        self.kwargs: dict[str, Any] = bundle.kwargs
        self.recorded = Outcome(bundle.result, bundle.mutated, str(bundle.header.producer.get("device", "")))
        header = bundle.header
        # Backward calls are recorded below autocast: their inputs have been cast already.
        self._autocast = recorded_autocast(header.context, header.producer) if header.phase == "forward" else None
        self._default_dtype = recorded_default_dtype(header.context)
        self._writes = bool(self.recorded.mutated) or may_write(target.name, self.kwargs)

    def reference(self, device: Device) -> Outcome:
        """The run in the call's own dtypes; NotReplayable, with the reason, when no way of running it works."""
        try:
            return self._reference(device)
        except FAILURES as error:
            if not device.is_oom(error):
                raise NotReplayable(f"raises on replay: {_brief(error)}") from error
        except MemoryError:
            pass
        return self._short_of_memory(device)

    def golden(self) -> Outcome:
        """The run on the CPU in raised precision."""
        if self._target.fused is not None:
            return self._run(Device(), AS_RECORDED, golden=True)
        casts = golden_casts(self._target.name, self.args, self.kwargs, self._rounded_to())
        attempts: list[tuple[Casts, tuple[str, ...]]] = [(casts, ())]
        if has_narrow_ints(self.args, self.kwargs):
            attempts.append((with_wide_ints(casts), ("golden: integer arguments widened to int64",)))
        if has_low_precision(self.args, self.kwargs):
            attempts.append((IN_SINGLE, ("golden: computed in float32",)))
        first: Exception | None = None
        for attempt, notes in attempts:
            try:
                return self._run(Device(), attempt, golden=True, notes=notes)
            except FAILURES as error:
                first = first or error
        assert first is not None
        raise NotReplayable(f"no golden: raises on the CPU in raised precision: {_brief(first)}") from first

    def _short_of_memory(self, device: Device) -> Outcome:
        """Once more on an empty cache, then on the CPU."""
        device.empty_cache()
        try:
            return self._reference(device)
        except (*FAILURES, MemoryError) as error:
            if not device.is_oom(error):
                raise NotReplayable(f"raises on replay: {_brief(error)}") from error
        device.empty_cache()
        if not device.is_cpu:
            try:
                outcome = self._reference(Device())
            except (*FAILURES, MemoryError) as error:
                raise NotReplayable(f"out of memory on {device.name}, and on the CPU: {_brief(error)}") from error
            note = f"out of memory on {device.name}: replayed on the CPU"
            return Outcome(outcome.result, outcome.mutated, outcome.device, (note, *outcome.notes))
        raise NotReplayable(f"out of memory on {device.name}, twice")

    def _reference(self, device: Device) -> Outcome:
        try:
            outcome = self._run(device, AS_RECORDED)
        except FAILURES as error:
            if device.is_oom(error):
                raise
            return self._wider(device, error)
        if self._autocast is not None and self._autocast[0] != device.type and not self._same_dtypes(outcome):
            return self._by_output_dtype(device) or outcome
        return outcome

    def _wider(self, device: Device, error: Exception) -> Outcome:
        """The same with the types that kernels commonly lack widened, and the results cast back."""
        for casts, note in self._wider_casts():
            try:
                outcome = self._run(device, casts)
            except FAILURES:
                continue
            result = cast_like(outcome.result, self.recorded.result)
            mutated = cast_like(outcome.mutated, self.recorded.mutated)
            return Outcome(result, mutated, outcome.device, (f"{note} ({_brief(error)})",))
        raise error

    def _wider_casts(self) -> Iterator[tuple[Casts, str]]:
        if has_narrow_ints(self.args, self.kwargs):
            yield WIDE_INTS, "reference: integer arguments widened to int64"
        if has_low_precision(self.args, self.kwargs):
            yield IN_SINGLE, "reference: computed in float32"

    def _by_output_dtype(self, device: Device) -> Outcome | None:
        """Two kinds of device may autocast differently: the recorded output's dtype says what this call computed in."""
        for dtype in {tensor.dtype for tensor in tensors(self.recorded.result) if tensor.is_floating_point()}:
            floats = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), dtype)
            try:
                outcome = self._run(device, Casts(floats, {}), autocast=False)
            except FAILURES:
                continue
            if self._same_dtypes(outcome):
                return Outcome(
                    outcome.result,
                    outcome.mutated,
                    outcome.device,
                    (f"reference: autocast as on the device, in {str(dtype).removeprefix('torch.')}",),
                )
        return None

    def _same_dtypes(self, outcome: Outcome) -> bool:
        pairs = zip(tensors(outcome.result), tensors(self.recorded.result), strict=False)
        return all(ours.dtype is theirs.dtype for ours, theirs in pairs)

    def _rounded_to(self) -> torch.dtype | None:
        """The dtype to which autocast rounded this call's float32 inputs on the device; None where it did not."""
        if self._autocast is None or self._writes:
            return None
        dtype = self._autocast[1]
        if any(isinstance(value, torch.dtype) for value in (*self.args, *self.kwargs.values())):
            return None
        return dtype if any(tensor.dtype is dtype for tensor in tensors(self.recorded.result)) else None

    def _run(
        self, device: Device, casts: Casts, *, golden: bool = False, autocast: bool = True, notes: tuple[str, ...] = ()
    ) -> Outcome:
        name = self._target.name
        given = prepared(name, self.args, self.kwargs, device, casts, writes=self._writes)
        args, kwargs = given.args, given.kwargs
        default_dtype = self._default_dtype
        if golden and default_dtype is torch.float32:
            default_dtype = torch.float64
        dtype = self._autocast[1] if self._autocast is not None and autocast and not golden else None
        fused = self._target.fused
        call = fused.golden if golden and fused is not None else self._target.call
        with surroundings(device.type, dtype, default_dtype):
            result = call(*args, **kwargs)
            if fused is not None:
                written = fused.written(args, kwargs, result)
                mutated = {path: written.get(path) for path in self.recorded.mutated}
            else:
                mutated = {path: _written(args, kwargs, path) for path in self.recorded.mutated}
            device.sync()
        if not given.untouched():
            raise NotReplayable("the call wrote to an argument that its record does not name as written")
        result, mutated = _on_cpu((result, mutated))
        if given.rewritten and not golden:
            result = cast_like(result, self.recorded.result)
            notes = (*notes, "reference: computed in float32 and cast, without a fused change of dtype")
        return Outcome(result, mutated, device.name, notes)


def _written(args: tuple[Any, ...], kwargs: dict[str, Any], path: str) -> Any:
    try:
        return at_path(args, kwargs, path)
    except LookupError:
        raise NotReplayable(f"its record names {path} as written, and there is no such argument") from None


def _on_cpu(tree: Any) -> Any:
    """The same on the CPU; one tensor that stands in two places stays one tensor."""
    moved: dict[int, torch.Tensor] = {}

    def move(leaf: Any) -> Any:
        return moved.setdefault(id(leaf), leaf.cpu()) if isinstance(leaf, torch.Tensor) else leaf

    return map_leaves(move, tree)


def _brief(error: BaseException) -> str:
    """The first line of an error, with its kind."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__

"""Backward capture: inside a backward, every operator of the dispatcher that computes something is a call of its own.

The engine runs with function modes off and calls operators, not functions, so what is recorded here are `Aten.*` and `NPU.*`
calls, with `phase` backward and, where it is known, the forward call whose gradient they compute.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch._ops import OpOverload
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .names import OPENED, Name, name_of, operator_name
from .opened import opened
from .origins import Origins
from .recorder import Recorder

ENTRIES = frozenset({torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad})
# Operators that compute nothing: makers of uninitialised memory, other handles of the same memory, plain copies, questions.
_SKIPPED = frozenset(
    """
    _efficientzerotensor empty empty_like empty_permuted empty_strided new_empty new_empty_strided empty_quantized resize_
    resize resize_as_ set_ alias alias_copy detach detach_ detach_copy lift lift_fresh lift_fresh_copy view_copy
    _reshape_alias _reshape_copy _unsafe_view clone copy_ copy _copy_from _local_scalar_dense item is_same_size
    _has_same_storage_numel _version sym_size sym_stride sym_numel sym_storage_offset sym_is_contiguous is_pinned _pin_memory
    pin_memory record_stream _npu_format_cast npu_format_cast npu_format_cast_ get_npu_format
    """.split()
)
_DisableTorchFunction: Any = torch._C.DisableTorchFunction
_modes_below: Callable[[], int] = torch._C._len_torch_dispatch_stack
_current_node: Callable[[], Any] = torch._C._current_autograd_node


@functools.lru_cache(maxsize=4096)
def recorded_name(operator: Any) -> Name | None:
    """(type, base) of an operator that a backward may run and that is worth a record; None for the others."""
    name = operator_name(operator)
    if name is None or name[1] in _SKIPPED:
        return None
    returns = operator._schema.returns
    is_view = any(value.alias_info is not None and not value.alias_info.is_write for value in returns)
    return None if is_view or (not returns and not operator._schema.is_mutable) else name


def _only_moves(base: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a conversion changes no value: another place or layout, the same dtype."""
    return base == "_to_copy" and kwargs.get("dtype") in (None, args[0].dtype)


class _Here(threading.local):
    """What a thread knows while it is inside a backward: whether user code (a hook, a forward that runs again) is calling a
    function, and which call of the first run that function repeats, if that is known."""

    repeating = False
    repeated: str | None = None


class BackwardMode(TorchDispatchMode):
    """Sees every operator that a backward runs, in whichever thread, and gives those that compute to the recorder.

    Operators of higher order (`torch.cond`, `flex_attention`) pass whole: torch refuses to run them under a mode that does not
    say that it takes them, and what they call inside is theirs.
    """

    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder
        self.here = _Here()

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if type(func) is not OpOverload or self._recorder.silent or _is_symbolic():
            return func(*args, **kwargs)
        name = recorded_name(func)
        skipped = name is None or _only_moves(name[1], args, kwargs)
        if skipped and not torch.is_grad_enabled():
            return call_on(func, args, kwargs)
        origin = self._origin()
        if name is None or skipped:
            return call_on(func, args, kwargs)
        return self._recorder.backward(name, func, args, kwargs, origin, call_on)

    def _origin(self) -> str | None:
        """The forward call that this operator belongs to; the nodes that it adds to a graph are put down to the same call."""
        here, origins = self.here, self._recorder.origins
        node = None if here.repeating else _current_node()
        made = None if node is None else origins.maker_of(node._sequence_nr())
        if torch.is_grad_enabled():
            origins.note_in_backward(here.repeated if here.repeating else made)
        return made


def call_on(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator for the dispatch mode that was asked for it."""
    if _modes_below():
        return func(*args, **kwargs)
    # Nobody below us is written in Python, so nobody is asked whether he overrides the operator: it takes half the time.
    with _DisableTorchFunction():
        return func(*args, **kwargs)


class RepeatMode(TorchFunctionMode):
    """Sees the functions that user code calls inside a backward: hooks, and checkpointed regions that run again.

    Nothing is recorded here. It tells a forward that runs again from a gradient, and by which names it ran the first time, so
    that the gradients of a graph made by the second run are put down to the calls of the first.
    """

    def __init__(self, mode: BackwardMode, origins: Origins) -> None:
        super().__init__()
        self._here, self._origins = mode.here, origins

    def __torch_function__(
        self, func: Callable[..., Any], _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        # An operator: the dispatch mode itself is calling on.
        if torch.compiler.is_compiling() or type(func) is OpOverload:
            return func(*args, **kwargs)
        node = _current_node()
        if func in ENTRIES:
            with nullcontext() if node is None else self._origins.nested(), self:
                return opened(func)(*args, **kwargs)
        name = name_of(func)
        if name is None or node is None or self._is_gradient(node):
            return func(*args, **kwargs)
        if name[1] in OPENED:
            with self:
                return opened(func)(*args, **kwargs)
        here = self._here
        outer = here.repeating, here.repeated
        here.repeating, here.repeated = True, self._first_run(node, name)
        try:
            result = func(*args, **kwargs)
            if here.repeated is not None:
                self._origins.note_repeated(here.repeated, name)
            return result
        finally:
            here.repeating, here.repeated = outer

    def _is_gradient(self, node: Any) -> bool:
        """Whether Python code is the backward of a recorded call, as with operators that define theirs in Python."""
        written_here = isinstance(node, BackwardCFunction) and not torch.is_grad_enabled()
        return written_here and self._origins.maker_of(node._sequence_nr()) is not None

    def _first_run(self, node: Any, name: Name) -> str | None:
        # Only a node written in Python can run a forward again and then a backward through it.
        return self._origins.first_run(node._sequence_nr(), name) if isinstance(node, BackwardCFunction) else None


def run_backward(recorder: Recorder, entry: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one of `ENTRIES` with its operators recorded."""
    mode = BackwardMode(recorder)
    with recorder.origins.backward(), mode, RepeatMode(mode, recorder.origins):
        return entry(*args, **kwargs)


def _is_symbolic() -> bool:
    """Whether operators run on symbols of a compiler or on fake tensors, not on values."""
    return torch.compiler.is_compiling() or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None

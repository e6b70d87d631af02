"""Forward capture: one function mode that sees every call of torch's API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .backward import ENTRIES, run_backward
from .names import OPENED, name_of
from .opened import opened
from .recorder import Recorder


class CaptureMode(TorchFunctionMode):
    """Sees every call while it is active in a thread, and gives those that are API calls to the recorder.

    With `backward`, the operators of a backward are recorded too.
    """

    def __init__(self, recorder: Recorder, *, backward: bool = True) -> None:
        super().__init__()
        self._recorder, self._backward = recorder, backward

    def __torch_function__(
        self, func: Callable[..., Any], _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        # First of all: a compiler traces this very method, up to here and no further.
        if _is_hidden() or self._recorder.silent:
            return func(*args, **kwargs)
        name = name_of(func)
        if name is None:
            if self._backward and func in ENTRIES:
                return run_backward(self._recorder, func, args, kwargs)
            return func(*args, **kwargs)
        if name[1] in OPENED:
            with self:
                return opened(func)(*args, **kwargs)
        return self._recorder.forward(name, func, args, kwargs)


def _is_hidden() -> bool:
    """Whether tensors here are symbols of a compiler or of a function transform, not values."""
    return torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None

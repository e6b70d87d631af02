"""A function of torch without its question for modes and overrides: its body runs, and what it calls is seen."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


@functools.lru_cache(maxsize=16)
def opened(function: Any) -> Callable[..., Any]:
    """`function`, with its body run at once; for functions that are written in Python."""
    body = types.FunctionType(
        function.__code__,
        {**function.__globals__, **dict.fromkeys(_QUESTIONS, lambda *relevant: False)},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    body.__kwdefaults__ = function.__kwdefaults__
    return body

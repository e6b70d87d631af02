"""What a fused operator's reference raises on purpose.

::

    LookupError
    └── UnknownFusedOp        no reference is registered under that name
    ValueError
    ├── InvalidArgument       the official signature or its documentation forbids this value
    └── UnsupportedArgument   a legal value that the reference does not implement

The messages name the operator, the argument, the value and the rule.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import torch


class UnknownFusedOp(LookupError):
    """No reference is registered under the name."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        self.name = name
        nearest = difflib.get_close_matches(name, list(known), n=1)
        hint = f"; the nearest name is {nearest[0]}" if nearest else ""
        super().__init__(f"no reference for {name}{hint}; fused_ops.register adds one")

    def __reduce__(self) -> tuple[type[UnknownFusedOp], tuple[str]]:
        return type(self), (self.name,)


class _ArgumentError(ValueError):
    """One argument that cannot be used; the operator's name is added where the call is made."""

    def __init__(self, argument: str, value: object, rule: str, operator: str = "") -> None:
        self.argument = argument
        self.value = value if isinstance(value, str) else describe(value)
        self.rule = rule
        self.operator = operator
        super().__init__(argument, self.value, rule, operator)

    def __str__(self) -> str:
        place = f"{self.operator}: " if self.operator else ""
        return f"{place}{self.argument} = {self.value}: {self.rule}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.argument, self.value, self.rule, self.operator)

    def of(self, operator: str) -> _ArgumentError:
        """The same error with the operator's name in it."""
        return type(self)(self.argument, self.value, self.rule, self.operator or operator)


class InvalidArgument(_ArgumentError):
    """A value that the operator's signature or documentation forbids."""


class UnsupportedArgument(_ArgumentError):
    """A legal value that the reference does not implement; it is never silently ignored."""


def describe(value: object) -> str:
    """A short text for a value: a tensor by shape and dtype, everything else by its repr."""
    if isinstance(value, torch.Tensor):
        return f"tensor of shape {tuple(value.shape)}, {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        return f"[{', '.join(describe(item) for item in value[:4])}{', …' if len(value) > 4 else ''}]"
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def check(condition: bool, argument: str, value: object, rule: str) -> None:
    """Raise InvalidArgument unless the rule holds."""
    if not condition:
        raise InvalidArgument(argument, value if not isinstance(value, str) else repr(value), rule)

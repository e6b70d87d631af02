"""What a pair of a forward and its backward operator is, for the tests of gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fused_make import Make

Results = Sequence[Any]


@dataclass(frozen=True)
class Pair:
    """`back` maps the forward's arguments, results and output gradients to the backward's arguments."""

    forward: str
    backward: str
    make: Callable[[Make], dict[str, Any]]
    wrt: tuple[str, ...]
    back: Callable[[dict[str, Any], Results, Results], dict[str, Any]]
    outputs: tuple[int, ...] = (0,)
    # Which result of the backward belongs to which argument of `wrt`.
    results: tuple[int, ...] = ()
    label: str = ""
    tolerance: dict[str, float] = field(default_factory=lambda: {"rtol": 1e-9, "atol": 1e-9})

    def id(self) -> str:
        return f"{self.backward}{'-' if self.label else ''}{self.label}"

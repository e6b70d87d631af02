"""What examples of fused operators are made of: tensors of one dtype from one seed, a call and what it must return.

An output is (shape, dtype); FLOAT stands for the dtype that the example was built with, None for an undefined output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

FLOAT = "float"
F32, I32, I64, U8 = torch.float32, torch.int32, torch.int64, torch.uint8


class Make:
    """Tensors of one dtype from one seed, so that an example can be built again, equal."""

    def __init__(self, dtype: torch.dtype = torch.float32, seed: int = 0) -> None:
        self.dtype = dtype
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(dtype or self.dtype)

    def positive(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return self.normal(*shape, dtype=dtype).abs() + 0.5

    def below(self, high: int, *shape: int, dtype: torch.dtype = I64) -> Tensor:
        return torch.randint(0, high, shape, generator=self.generator).to(dtype)

    def flags(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator) < 0.3

    def order(self, count: int, dtype: torch.dtype = I32) -> Tensor:
        return torch.randperm(count, generator=self.generator).to(dtype)


@dataclass(frozen=True)
class Example:
    """`make` gives the arguments by name; `outputs` what comes back, a list where the operator returns one."""

    op: str
    make: Callable[[Make], dict[str, Any]]
    outputs: tuple[tuple[tuple[int, ...], Any] | None, ...]

    def arguments(self, dtype: torch.dtype = torch.float32, seed: int = 0) -> dict[str, Any]:
        return self.make(Make(dtype, seed))

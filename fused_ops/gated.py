"""Gated linear units: one half of the input, activated, scales the other."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register


def halves(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The two halves along `dim`, which must exist and be even."""
    rank = self.dim()
    check(rank > 0 and -rank <= dim < rank, "dim", dim, f"must name one of the {rank} dimensions")
    size = self.shape[dim]
    check(size % 2 == 0, "dim", dim, f"the size along it must be even, it is {size}")
    return self.narrow(dim, 0, size // 2), self.narrow(dim, size // 2, size // 2)


@register(
    "npu_swiglu(Tensor self, int dim=-1) -> Tensor",
    source="op-plugin schema and manual: silu of the first half times the second, float32 inside, one rounding",
)
def swiglu(run: Precision, self: Tensor, dim: int) -> Tensor:
    a, b = halves(run.up(self), dim)
    return run.down(a * torch.sigmoid(a) * b, self.dtype)


@register(
    "npu_swiglu_backward(Tensor grad_output, Tensor self, int dim=-1) -> Tensor",
    source="op-plugin schema; the derivative of npu_swiglu",
    backward_of="npu_swiglu",
)
def swiglu_backward(run: Precision, grad_output: Tensor, self: Tensor, dim: int) -> Tensor:
    a, b = halves(run.up(self), dim)
    check(grad_output.shape == a.shape, "grad_output", grad_output, f"must have the shape {tuple(a.shape)}")
    dy = run.up(grad_output)
    s = torch.sigmoid(a)
    return run.down(torch.cat([dy * b * (s + a * s * (1 - s)), dy * a * s], dim), self.dtype)

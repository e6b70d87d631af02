"""Sorting and selecting by value."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register


@register(
    "npu_sort_v2(Tensor self, int dim=-1, bool descending=False) -> Tensor",
    "npu_sort_v2.out(Tensor self, int dim=-1, bool descending=False, *, Tensor(a!) out) -> Tensor(a!)",
    source="op-plugin schemas, manual, host code and test: the sorted values without indices. The manual's float32 "
    "example shows values rounded to float16, which its text does not say and its test (float16 alone) does not reach; "
    "the example is followed: float32 is rounded to float16 first",
    standard="binary consistency",
)
def sort_v2(run: Precision, self: Tensor, dim: int, descending: bool) -> Tensor:
    check_dim(self, dim)
    values = self.to(torch.float16) if self.dtype == torch.float32 else self
    return run.down(values.sort(dim=dim, descending=descending).values, self.dtype)


def check_dim(tensor: Tensor, dim: int) -> None:
    """The dimension must exist; a scalar has the dimension 0."""
    rank = max(tensor.dim(), 1)
    check(-rank <= dim < rank, "dim", dim, f"must name one of the {tensor.dim()} dimensions")


def _extreme(run: Precision, self: Tensor, dim: int, keepdim: bool, largest: bool) -> tuple[Tensor, Tensor]:
    check_dim(self, dim)
    check(self.dim() == 0 or self.shape[dim] > 0, "dim", dim, "must not be empty")
    index = self.argmax(dim, keepdim=True) if largest else self.argmin(dim, keepdim=True)
    values = self.gather(dim, index) if self.dim() else self.clone()
    if not keepdim and self.dim():
        values, index = values.squeeze(dim), index.squeeze(dim)
    return run.down(values, self.dtype), index.reshape(values.shape).to(torch.int32)


@register(
    "npu_max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
    source="op-plugin schema, manual and host code: as torch.max, with int32 indices",
    standard="binary consistency",
)
def maximum(run: Precision, self: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    return _extreme(run, self, dim, keepdim, largest=True)


@register(
    "npu_min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
    source="op-plugin schema, manual and host code: as torch.min, with int32 indices",
    standard="binary consistency",
)
def minimum(run: Precision, self: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    return _extreme(run, self, dim, keepdim, largest=False)


def _scattered(
    run: Precision, grad: Tensor, dim: int, indices: Tensor, sizes: tuple[int, ...], keepdim: bool
) -> Tensor:
    """grad at the chosen places of a zero tensor of shape sizes."""
    check(-max(len(sizes), 1) <= dim < max(len(sizes), 1), "dim", dim, f"must name a dimension of {list(sizes)}")
    check(grad.shape == indices.shape, "indices", indices, f"must have grad's shape {tuple(grad.shape)}")
    if not sizes:
        return run.down(grad.clone(), grad.dtype)
    source, index = (grad, indices) if keepdim else (grad.unsqueeze(dim), indices.unsqueeze(dim))
    return run.down(grad.new_zeros(sizes).scatter(dim, index.long(), source), grad.dtype)


for _name in ("max", "min"):
    register(
        f"npu_{_name}_backward(Tensor grad, int dim, Tensor indices, SymInt[] sizes, bool keepdim) -> Tensor",
        source="op-plugin schema and host code: grad scattered to the chosen indices",
        standard="binary consistency",
        backward_of=f"npu_{_name}",
    )(_scattered)

"""Sorting and selecting by value."""

from __future__ import annotations

from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register


@register(
    "npu_sort_v2(Tensor self, int dim=-1, bool descending=False) -> Tensor",
    "npu_sort_v2.out(Tensor self, int dim=-1, bool descending=False, *, Tensor(a!) out) -> Tensor(a!)",
    source="op-plugin schemas and manual: the sorted values without indices. The manual's float32 example shows values "
    "rounded to half, its text does not say so; exact sorting is followed",
    standard="binary consistency",
)
def sort_v2(run: Precision, self: Tensor, dim: int, descending: bool) -> Tensor:
    check_dim(self, dim)
    return run.down(self.sort(dim=dim, descending=descending).values, self.dtype)


def check_dim(tensor: Tensor, dim: int) -> None:
    """The dimension must exist; a scalar has the dimension 0."""
    rank = max(tensor.dim(), 1)
    check(-rank <= dim < rank, "dim", dim, f"must name one of the {tensor.dim()} dimensions")

"""Dense matrix products and their gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register


def product(run: Precision, left: Tensor, right: Tensor) -> Tensor:
    """left @ right in the computing dtype; integers are summed exactly, in int64."""
    if left.is_floating_point():
        return run.up(left) @ run.up(right)
    return left.to(torch.int64) @ right.to(torch.int64)


@register(
    "npu_linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    source="op-plugin schema and manual: input[M,K] · weight[N,K]ᵀ + bias[N]; int8 inputs give int32",
)
def linear(run: Precision, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    check(input.dim() == 2, "input", input, "must have 2 dimensions")
    check(weight.dim() == 2 and weight.shape[1] == input.shape[1], "weight", weight, f"must be [N, {input.shape[1]}]")
    y = product(run, input, weight.t())
    if bias is not None:
        check(bias.numel() == weight.shape[0], "bias", bias, f"must hold {weight.shape[0]} elements")
        y = y + run.up(bias).reshape(-1)
    return run.down(y, input.dtype if input.is_floating_point() else torch.int32)


@register(
    "npu_linear_backward(Tensor grad, Tensor input, Tensor weight) -> (Tensor dinput, Tensor dweight)",
    source="op-plugin schema and derivatives; the bias gradient is a separate sum of grad over its rows",
    backward_of="npu_linear",
)
def linear_backward(run: Precision, grad: Tensor, input: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = input.shape[0], weight.shape[0]
    check(tuple(grad.shape) == (rows, columns), "grad", grad, f"must be [{rows}, {columns}]")
    dinput = product(run, grad, weight)
    dweight = product(run, grad.t(), input)
    return run.down(dinput, input.dtype), run.down(dweight, weight.dtype)


@register(
    "matmul_backward(Tensor grad, Tensor self, Tensor other, bool[2] mask) -> (Tensor dself, Tensor dother)",
    source="op-plugin schema; the gradients of torch.matmul, each only where mask asks for it",
    backward_of="matmul",
    uncompared=lambda bound: {
        index: "not asked for by mask" for index, wanted in enumerate(bound["mask"]) if not wanted
    },
)
def matmul_backward(
    run: Precision, grad: Tensor, self: Tensor, other: Tensor, mask: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    check(self.dim() > 0, "self", self, "needs at least one dimension")
    check(other.dim() > 0, "other", other, "needs at least one dimension")
    left, right = run.up(self), run.up(other)
    # Vectors act as one row on the left and one column on the right.
    rows = left.unsqueeze(0) if left.dim() == 1 else left
    columns = right.unsqueeze(1) if right.dim() == 1 else right
    batch = grad.shape[: max(rows.dim(), columns.dim()) - 2]
    dy = run.up(grad).reshape(*batch, rows.shape[-2], columns.shape[-1])
    dself = dother = None
    if mask[0]:
        dself = run.down((dy @ columns.mT).sum_to_size(rows.shape).reshape(self.shape), self.dtype)
    if mask[1]:
        dother = run.down((rows.mT @ dy).sum_to_size(columns.shape).reshape(other.shape), other.dtype)
    return dself, dother

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
    source="op-plugin schema, manual and host code: input[M,K] · weight[N,K]ᵀ + bias[N] in the input's dtype. How sums of "
    "int8 products fit into the int8 result that the host code allocates is nowhere said: they are not compared",
    uncompared=lambda bound: {0: "sums in int8 are left open"} if bound["input"].dtype == torch.int8 else {},
    uncompared_note="the result of int8 inputs",
)
def linear(run: Precision, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    check(input.dim() == 2, "input", input, "must have 2 dimensions")
    check(weight.dim() == 2 and weight.shape[1] == input.shape[1], "weight", weight, f"must be [N, {input.shape[1]}]")
    y = product(run, input, weight.t())
    if bias is not None:
        check(bias.numel() == weight.shape[0], "bias", bias, f"must hold {weight.shape[0]} elements")
        y = y + run.up(bias).reshape(-1)
    return run.down(y, input.dtype)


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
    uncompared_note="gradients that the mask does not ask for",
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


@register(
    "npu_bmmV2(Tensor self, Tensor mat2, int[] output_sizes) -> Tensor",
    source="op-plugin schema, manual and host code: a broadcasting matrix product; output_sizes, if not empty, is the "
    "shape to which broadcast batch dimensions are summed",
)
def bmm_v2(run: Precision, self: Tensor, mat2: Tensor, output_sizes: tuple[int, ...]) -> Tensor:
    check(self.dim() > 0, "self", self, "needs at least one dimension")
    check(mat2.dim() > 0, "mat2", mat2, "needs at least one dimension")
    left = self.unsqueeze(0) if self.dim() == 1 else self
    right = mat2.unsqueeze(1) if mat2.dim() == 1 else mat2
    check(left.shape[-1] == right.shape[-2], "mat2", mat2, f"its rows must match self's {left.shape[-1]} columns")
    y = product(run, left, right)
    if self.dim() == 1 != mat2.dim():
        y = y.squeeze(-2)
    elif mat2.dim() == 1 != self.dim():
        y = y.squeeze(-1)
    return run.down(_summed(y, output_sizes, "output_sizes") if output_sizes else y, self.dtype)


def _summed(y: Tensor, sizes: tuple[int, ...], name: str) -> Tensor:
    """y summed over the dimensions that were broadcast, in the shape `sizes`."""
    aligned = (1,) * (y.dim() - len(sizes)) + tuple(sizes)
    fits = len(aligned) == y.dim() and all(size in {1, full} for size, full in zip(aligned, y.shape, strict=True))
    check(fits, name, sizes, f"must be reachable from {tuple(y.shape)} by sums")
    return y.sum_to_size(aligned).reshape(sizes)


def _bmm_operands(grad: Tensor, mat1: Tensor, mat2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    left = mat1.unsqueeze(0) if mat1.dim() == 1 else mat1
    right = mat2.unsqueeze(1) if mat2.dim() == 1 else mat2
    batch = max(left.dim(), right.dim()) - 2
    return grad.reshape(*grad.shape[:batch], left.shape[-2], right.shape[-1]), left, right


@register(
    "npu_bmm_v2_mat1_backward(Tensor grad, Tensor mat1, Tensor mat2, SymInt[] size) -> Tensor",
    source="op-plugin schema and host code: grad · mat2ᵀ, summed to size",
    backward_of="npu_bmmV2",
)
def bmm_v2_mat1_backward(run: Precision, grad: Tensor, mat1: Tensor, mat2: Tensor, size: tuple[int, ...]) -> Tensor:
    dy, _, right = _bmm_operands(grad, mat1, mat2)
    dmat1 = product(run, dy, right.mT)
    return run.down(_summed(dmat1.squeeze(-2) if mat1.dim() == 1 else dmat1, size, "size"), mat1.dtype)


@register(
    "npu_bmm_v2_mat2_backward(Tensor grad, Tensor mat1, Tensor mat2, SymInt[] size) -> Tensor",
    source="op-plugin schema and host code: mat1ᵀ · grad, summed to size",
    backward_of="npu_bmmV2",
)
def bmm_v2_mat2_backward(run: Precision, grad: Tensor, mat1: Tensor, mat2: Tensor, size: tuple[int, ...]) -> Tensor:
    dy, left, _ = _bmm_operands(grad, mat1, mat2)
    dmat2 = product(run, left.mT, dy)
    return run.down(_summed(dmat2.squeeze(-1) if mat2.dim() == 1 else dmat2, size, "size"), mat2.dtype)


@register(
    "npu_transpose_batchmatmul(Tensor input, Tensor weight, *, Tensor? bias=None, Tensor? scale=None, "
    "int[]? perm_x1=None, int[]? perm_x2=None, int[]? perm_y=None, int? batch_split_factor=1) -> Tensor",
    source="op-plugin schema, manual, host code and test: batch first, then matrices; the result is [M, B, N], or "
    "[factor, M, B·N/factor]; bias is not supported by the operator, scale (int8 result) not by the reference",
)
def transpose_batchmatmul(
    run: Precision,
    input: Tensor,
    weight: Tensor,
    perm_x1: tuple[int, ...] | None,
    perm_x2: tuple[int, ...] | None,
    perm_y: tuple[int, ...] | None,
    batch_split_factor: int | None,
) -> Tensor:
    for name, tensor in (("input", input), ("weight", weight)):
        check(tensor.dim() == 3, name, tensor, "must have 3 dimensions")
    orders = {"perm_x1": perm_x1 or (0, 1, 2), "perm_x2": perm_x2 or (0, 1, 2), "perm_y": perm_y or (1, 0, 2)}
    for name, order in orders.items():
        check(sorted(order) == [0, 1, 2], name, order, "must be a permutation of 0, 1, 2")
    left, right = input.permute(orders["perm_x1"]), weight.permute(orders["perm_x2"])
    fits = left.shape[0] == right.shape[0] and left.shape[2] == right.shape[1]
    check(fits, "weight", weight, f"must be [{left.shape[0]}, {left.shape[2]}, N] after perm_x2")
    y = (run.up(left) @ run.up(right)).permute(orders["perm_y"])
    factor = 1 if batch_split_factor is None else batch_split_factor
    if factor > 1:
        columns = y.shape[1] * y.shape[2]
        check(columns % factor == 0, "batch_split_factor", factor, f"must divide {columns}")
        y = y.reshape(y.shape[0], factor, columns // factor).transpose(0, 1)
    return run.down(y, input.dtype).contiguous()

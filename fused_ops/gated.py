"""Gated linear units: one half of the input, activated, scales the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .activations import gelu_of, gelu_slope
from .errors import check
from .precision import Precision
from .registry import register


def halves(self: Tensor, dim: int, name: str = "self") -> tuple[Tensor, Tensor]:
    """The two halves along `dim`, which must exist and be even."""
    rank = self.dim()
    check(rank > 0 and -rank <= dim < rank, "dim", dim, f"must name one of the {rank} dimensions")
    size = self.shape[dim]
    check(size % 2 == 0, name, self, f"the size along dim {dim} must be even, it is {size}")
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


@register(
    "npu_gelu_mul(Tensor input, *, str approximate='none') -> Tensor",
    source="op-plugin schema and manual: GELU of the first half of the last dimension times the second",
)
def gelu_mul(run: Precision, input: Tensor, approximate: str) -> Tensor:
    a, b = halves(run.up(input), -1, "input")
    return run.down(gelu_of(a, approximate) * b, input.dtype)


@register(
    "npu_geglu(Tensor self, int dim=-1, int approximate=1, bool activate_left=False) -> (Tensor out, Tensor out_gelu)",
    source="op-plugin schema and kernel documentation: the half that is not activated times GELU of the other, which "
    "is "
    "the second output; approximate 1 is the tanh form, 0 the erf form",
)
def geglu(run: Precision, self: Tensor, dim: int, approximate: int, activate_left: bool) -> tuple[Tensor, Tensor]:
    left, right = halves(run.up(self), dim)
    gate, linear = (left, right) if activate_left else (right, left)
    activated = gelu_of(gate, _geglu_form(approximate))
    return run.down(linear * activated, self.dtype), run.down(activated, self.dtype)


@register(
    "npu_geglu_grad(Tensor grad_output, Tensor self, Tensor gelu, int dim=-1, int approximate=1, "
    "bool activate_left=False) -> Tensor",
    source="op-plugin schema and derivatives; gelu is the forward's second output",
    backward_of="npu_geglu",
)
def geglu_grad(
    run: Precision, grad_output: Tensor, self: Tensor, gelu: Tensor, dim: int, approximate: int, activate_left: bool
) -> Tensor:
    left, right = halves(run.up(self), dim)
    for name, tensor in (("grad_output", grad_output), ("gelu", gelu)):
        check(tensor.shape == left.shape, name, tensor, f"must have the shape {tuple(left.shape)}")
    gate, linear = (left, right) if activate_left else (right, left)
    dy = run.up(grad_output)
    dgate = dy * linear * gelu_slope(gate, _geglu_form(approximate))
    dlinear = dy * run.up(gelu)
    return run.down(torch.cat([dgate, dlinear] if activate_left else [dlinear, dgate], dim), self.dtype)


def _geglu_form(approximate: int) -> str:
    check(approximate in {0, 1}, "approximate", approximate, "must be 0 (erf) or 1 (tanh)")
    return "tanh" if approximate else "none"


@register(
    "npu_clipped_swiglu(Tensor x, *, Tensor? group_index=None, int dim=-1, float alpha=1.702, float limit=7.0, "
    "float bias=1.0, bool interleaved=True) -> Tensor",
    source="op-plugin schema, manual and test; dimensions from dim on are one axis when halves are taken; rows behind "
    "the sum of group_index are zero in the test's golden, the manual leaves them open and they are not compared",
    uncompared=lambda bound: _rows_left_out(bound),
    uncompared_note="the output where group_index leaves rows out",
)
def clipped_swiglu(
    run: Precision,
    x: Tensor,
    group_index: Tensor | None,
    dim: int,
    alpha: float,
    limit: float,
    bias: float,
    interleaved: bool,
) -> Tensor:
    check(x.dim() > 1, "x", x, "must have more than one dimension")
    halves(x, dim, "x")
    axis = dim % x.dim()
    flat = run.up(x).reshape(x.shape[:axis].numel(), -1)
    if interleaved:
        gate, linear = flat[:, 0::2], flat[:, 1::2]
    else:
        gate, linear = flat.chunk(2, -1)
    gate, linear = gate.clamp(max=limit), linear.clamp(-limit, limit)
    y = gate * torch.sigmoid(alpha * gate) * (linear + bias)
    if group_index is not None:
        row = torch.arange(y.shape[0], device=y.device).unsqueeze(1)
        y = torch.where(row < group_index.sum().to(y.device), y, 0.0)
    shape = [*x.shape[:axis], x.shape[axis] // 2, *x.shape[axis + 1 :]]
    return run.down(y.reshape(shape), x.dtype)


def _rows_left_out(bound: Mapping[str, Any]) -> dict[int, str]:
    group_index, x = bound["group_index"], bound["x"]
    if group_index is None:
        return {}
    rows = x.shape[: bound["dim"] % max(x.dim(), 1)].numel()
    return {0: "group_index leaves rows out, which stay undefined"} if int(group_index.sum()) < rows else {}

"""Pointwise activations and their gradients."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register

_SIGMOID_GELU = 1.702
_TANH_GELU = (math.sqrt(2 / math.pi), 0.044715)


def _fast_gelu(run: Precision, self: Tensor) -> Tensor:
    x = run.up(self)
    return run.down(x * torch.sigmoid(_SIGMOID_GELU * x), self.dtype)


for _name in ("fast_gelu", "npu_fast_gelu"):
    register(
        f"{_name}(Tensor self) -> Tensor",
        source="op-plugin schema and manual: y = x·σ(1.702·x); "
        "the manual's rendering with a second factor x is a slip and not followed",
    )(_fast_gelu)


@register(
    "npu_fast_gelu_backward(Tensor grad, Tensor self) -> Tensor",
    source="op-plugin schema; the derivative of npu_fast_gelu",
    backward_of="npu_fast_gelu",
)
def fast_gelu_backward(run: Precision, grad: Tensor, self: Tensor) -> Tensor:
    x = run.up(self)
    s = torch.sigmoid(_SIGMOID_GELU * x)
    return run.down(run.up(grad) * (s + _SIGMOID_GELU * x * s * (1 - s)), self.dtype)


@register(
    "npu_mish(Tensor self) -> Tensor",
    source="op-plugin schema and manual: y = x·tanh(ln(1 + eˣ)), as torch.nn.functional.mish",
)
def mish(run: Precision, self: Tensor) -> Tensor:
    x = run.up(self)
    return run.down(x * torch.tanh(_softplus(x)), self.dtype)


@register(
    "npu_mish_backward(Tensor grad, Tensor input) -> Tensor",
    source="op-plugin schema; the derivative of npu_mish",
    backward_of="npu_mish",
)
def mish_backward(run: Precision, grad: Tensor, input: Tensor) -> Tensor:
    x = run.up(input)
    t = torch.tanh(_softplus(x))
    return run.down(run.up(grad) * (t + x * torch.sigmoid(x) * (1 - t * t)), input.dtype)


def _softplus(x: Tensor) -> Tensor:
    # F.softplus returns x itself above 20, which float64 can tell from ln(1 + eˣ).
    return torch.logaddexp(x, torch.zeros_like(x))


@register(
    "npu_gelu(Tensor self, *, str approximate='none') -> Tensor",
    source="op-plugin schema and manual; 'none' is the erf form, 'tanh' the tanh form",
)
def gelu(run: Precision, self: Tensor, approximate: str) -> Tensor:
    return run.down(gelu_of(run.up(self), approximate), self.dtype)


@register(
    "npu_gelu_backward(Tensor grad_output, Tensor self, *, str approximate='none') -> Tensor",
    source="op-plugin schema; the derivative of npu_gelu",
    backward_of="npu_gelu",
)
def gelu_backward(run: Precision, grad_output: Tensor, self: Tensor, approximate: str) -> Tensor:
    return run.down(run.up(grad_output) * gelu_slope(run.up(self), approximate), self.dtype)


def gelu_of(x: Tensor, approximate: str) -> Tensor:
    """GELU in either form."""
    check(approximate in {"none", "tanh"}, "approximate", approximate, "must be 'none' or 'tanh'")
    return F.gelu(x, approximate=approximate)


def gelu_slope(x: Tensor, approximate: str) -> Tensor:
    """The derivative of GELU: Φ(x) + x·φ(x), or the derivative of the tanh form."""
    check(approximate in {"none", "tanh"}, "approximate", approximate, "must be 'none' or 'tanh'")
    if approximate == "none":
        density = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        below: Tensor = torch.special.ndtr(x)
        return below + torch.where(torch.isinf(x), 0.0, x) * density
    scale, cubic = _TANH_GELU
    t = torch.tanh(scale * (x + cubic * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * cubic * x * x)


def _silu(run: Precision, self: Tensor) -> Tensor:
    x = run.up(self)
    return run.down(x * torch.sigmoid(x), self.dtype)


register("npu_silu(Tensor self) -> Tensor", source="op-plugin schema and manual: y = x·σ(x)")(_silu)
register(
    "npu_silu_(Tensor(a!) self) -> Tensor(a!)",
    source="op-plugin schema; npu_silu with the result written into self",
)(_silu)


@register(
    "npu_silu_backward(Tensor grad_output, Tensor x0, Tensor x1) -> Tensor",
    source="op-plugin schema and derivatives: x0 is npu_silu's input, x1 its output; the slope follows from x0 alone",
    backward_of="npu_silu",
    inert=("x1",),
)
def silu_backward(run: Precision, grad_output: Tensor, x0: Tensor) -> Tensor:
    x = run.up(x0)
    s = torch.sigmoid(x)
    return run.down(run.up(grad_output) * (s + x * s * (1 - s)), x0.dtype)

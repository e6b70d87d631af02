"""Layer and root-mean-square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register


@register(
    "npu_layer_norm_eval(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1e-05) -> Tensor",
    source="op-plugin schema and manual; the same function as torch.nn.functional.layer_norm",
)
def layer_norm_eval(
    run: Precision,
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    rank = len(normalized_shape)
    check(
        rank > 0 and tuple(input.shape[input.dim() - rank :]) == normalized_shape,
        "normalized_shape",
        normalized_shape,
        f"must be the last dimensions of the input's shape {tuple(input.shape)}",
    )
    x = run.up(input)
    dims = tuple(range(input.dim() - rank, input.dim()))
    centred = x - x.mean(dims, keepdim=True)
    y = centred * torch.rsqrt((centred * centred).mean(dims, keepdim=True) + eps)
    for name, factor in (("weight", weight), ("bias", bias)):
        size = torch.Size(normalized_shape).numel()
        check(factor is None or factor.numel() == size, name, factor, f"must hold {size} elements")
    if weight is not None:
        y = y * run.up(weight).reshape(normalized_shape)
    if bias is not None:
        y = y + run.up(bias).reshape(normalized_shape)
    return run.down(y, input.dtype)


@register(
    "npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor y, Tensor rstd)",
    source="op-plugin schema and manual; the mean runs over as many last dimensions as gamma has",
)
def rms_norm(run: Precision, self: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    y, rstd = rms_normalise(run.up(self), run.up(gamma), epsilon)
    return run.down(y, self.dtype), run.down(rstd, torch.float32)


def rms_normalise(x: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """y = x·rstd·gamma and rstd = 1/√(mean(x²) + ε), whose shape ends in ones for gamma's dimensions."""
    dims = gamma_dims(x, gamma)
    rstd = torch.rsqrt((x * x).mean(dims, keepdim=True) + epsilon)
    return x * rstd * gamma, rstd


def gamma_dims(x: Tensor, gamma: Tensor) -> tuple[int, ...]:
    """The dimensions of x that gamma covers: the last ones, with equal sizes."""
    rank = gamma.dim()
    check(
        0 < rank <= x.dim() and x.shape[x.dim() - rank :] == gamma.shape,
        "gamma",
        gamma,
        f"must have the shape of the last dimensions of {tuple(x.shape)}",
    )
    return tuple(range(x.dim() - rank, x.dim()))


@register(
    "npu_rms_norm_backward(Tensor dy, Tensor self, Tensor gamma, Tensor rstd) -> (Tensor dx, Tensor dgamma)",
    source="op-plugin schema and derivatives; dgamma is float32 and summed over the leading dimensions",
    backward_of="npu_rms_norm",
)
def rms_norm_backward(run: Precision, dy: Tensor, self: Tensor, gamma: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    check(dy.shape == self.shape, "dy", dy, f"must have self's shape {tuple(self.shape)}")
    x, g, r, d = run.up(self), run.up(gamma), run.up(rstd), run.up(dy)
    dims = gamma_dims(x, g)
    leading = torch.Size([*self.shape[: dims[0]], *([1] * len(dims))])
    check(rstd.numel() == leading.numel(), "rstd", rstd, f"must hold the {leading.numel()} values of {tuple(leading)}")
    r = r.reshape(leading)
    scaled = d * g
    dx = (scaled - x * r * (scaled * x * r).mean(dims, keepdim=True)) * r
    dgamma = (d * x * r).reshape(-1, *gamma.shape).sum(0)
    return run.down(dx, self.dtype), run.down(dgamma, torch.float32)


@register(
    "npu_add_rms_norm(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor y, Tensor rstd, Tensor x)",
    source="op-plugin schema and manual: x = x1 + x2, normalised before it is rounded; on inference products rstd is "
    "invalid, which a bundle does not tell: it is compared",
)
def add_rms_norm(
    run: Precision, x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    check(x1.shape == x2.shape, "x2", x2, f"must have x1's shape {tuple(x1.shape)}")
    x = run.up(x1) + run.up(x2)
    y, rstd = rms_normalise(x, run.up(gamma), epsilon)
    return run.down(y, x1.dtype), run.down(rstd, torch.float32), run.down(x, x1.dtype)


@register(
    "npu_gemma_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor y, Tensor rstd)",
    source="op-plugin schema, host code and test: rms_norm with the factor 1 + gamma",
)
def gemma_rms_norm(run: Precision, self: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    y, rstd = rms_normalise(run.up(self), 1 + run.up(gamma), epsilon)
    return run.down(y, self.dtype), run.down(rstd, torch.float32)

"""Group normalisation fused with an activation."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register


@register(
    "npu_group_norm_silu(Tensor input, Tensor? weight, Tensor? bias, int group, float eps=0.00001) "
    "-> (Tensor out, Tensor mean, Tensor rstd)",
    source="op-plugin schema and manual; mean and rstd have the input's dtype",
)
def group_norm_silu(
    run: Precision, input: Tensor, weight: Tensor | None, bias: Tensor | None, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, rstd = normalise_groups(run, input, weight, bias, group, eps, "group")
    out = y * torch.sigmoid(y)
    return run.down(out, input.dtype), run.down(mean, input.dtype), run.down(rstd, input.dtype)


def normalise_groups(
    run: Precision, input: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float, name: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised and scaled input in the computing dtype, with mean and rstd of shape [N, groups]."""
    check(input.dim() >= 2, "input", input, "needs at least the dimensions N and C")
    batch, channels = input.shape[:2]
    check(groups > 0 and channels % groups == 0, name, groups, f"must divide the {channels} channels")
    for label, factor in (("weight", weight), ("bias", bias)):
        check(factor is None or factor.numel() == channels, label, factor, f"must hold {channels} elements")
    x = run.up(input)
    flat = x.reshape(batch, groups, -1) if input.numel() else x.new_zeros(batch, groups, 0)
    mean = flat.mean(-1)
    centred = flat - mean.unsqueeze(-1)
    rstd = torch.rsqrt((centred * centred).mean(-1) + eps)
    y = (centred * rstd.unsqueeze(-1)).reshape(input.shape)
    if weight is not None:
        y = y * per_channel(run.up(weight), input.dim())
    if bias is not None:
        y = y + per_channel(run.up(bias), input.dim())
    return y, mean, rstd


def per_channel(values: Tensor, rank: int) -> Tensor:
    """Values of shape [C] that broadcast over [N, C, …]."""
    return values.reshape(-1, *([1] * (rank - 2)))


@register(
    "npu_group_norm_swish(Tensor input, int num_groups, Tensor weight, Tensor bias, float? eps=1e-5, "
    "float? swish_scale=1.0) -> (Tensor out, Tensor mean, Tensor rstd)",
    source="op-plugin schema and manual: y·σ(scale·y) of the normalised y; mean and rstd have weight's dtype by the "
    "schema file, the input's by the manual, which also requires both to be equal",
)
def group_norm_swish(
    run: Precision,
    input: Tensor,
    num_groups: int,
    weight: Tensor,
    bias: Tensor,
    eps: float | None,
    swish_scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    eps, scale = _swish_options(eps, swish_scale)
    y, mean, rstd = normalise_groups(run, input, weight, bias, num_groups, eps, "num_groups")
    out = y * torch.sigmoid(scale * y)
    return run.down(out, input.dtype), run.down(mean, weight.dtype), run.down(rstd, weight.dtype)


def _swish_options(eps: float | None, swish_scale: float | None) -> tuple[float, float]:
    # None stands for the default, as in the host code.
    return 1e-5 if eps is None else eps, 1.0 if swish_scale is None else swish_scale


@register(
    "npu_group_norm_swish_grad(Tensor grad, Tensor input, int num_groups, Tensor weight, Tensor bias, Tensor mean, "
    "Tensor rstd, bool[3] grad_input_mask, float? swish_scale=1.0) -> (Tensor dinput, Tensor dweight, Tensor dbias)",
    source="op-plugin schema and derivatives; mean and rstd are the forward's",
    deterministic=False,
    backward_of="npu_group_norm_swish",
    uncompared_note="gradients that the mask does not ask for",
    uncompared=lambda bound: {
        index: "not asked for by grad_input_mask"
        for index, wanted in enumerate(bound["grad_input_mask"])
        if index and not wanted
    },
)
def group_norm_swish_grad(
    run: Precision,
    grad: Tensor,
    input: Tensor,
    num_groups: int,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    rstd: Tensor,
    grad_input_mask: tuple[bool, bool, bool],
    swish_scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    check(input.dim() >= 2, "input", input, "needs at least the dimensions N and C")
    check(grad.shape == input.shape, "grad", grad, f"must have the input's shape {tuple(input.shape)}")
    batch, channels = input.shape[:2]
    check(num_groups > 0 and channels % num_groups == 0, "num_groups", num_groups, f"must divide {channels} channels")
    for name, statistic in (("mean", mean), ("rstd", rstd)):
        fits = statistic.numel() == batch * num_groups
        check(fits, name, statistic, f"must hold {batch * num_groups} values")
    _, scale = _swish_options(None, swish_scale)
    grouped = (batch, num_groups, -1)
    r = run.up(rstd).reshape(batch, num_groups, 1)
    normal = (run.up(input).reshape(grouped) - run.up(mean).reshape(batch, num_groups, 1)) * r
    normal_in_shape = normal.reshape(input.shape)
    factor = per_channel(run.up(weight), input.dim())
    y = normal_in_shape * factor + per_channel(run.up(bias), input.dim())
    s = torch.sigmoid(scale * y)
    dy = run.up(grad) * (s + scale * y * s * (1 - s))
    dnormal = (dy * factor).reshape(grouped)
    mean_of = dnormal.mean(-1, keepdim=True) + normal * (dnormal * normal).mean(-1, keepdim=True)
    dinput = ((dnormal - mean_of) * r).reshape(input.shape)
    others = (0, *range(2, input.dim()))
    dweight, dbias = (dy * normal_in_shape).sum(others), dy.sum(others)
    return run.down(dinput, input.dtype), run.down(dweight, weight.dtype), run.down(dbias, bias.dtype)

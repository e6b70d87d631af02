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

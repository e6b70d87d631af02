"""Softmax fused with scaling and masking."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register

# A finite fill: a fully masked row is uniform, and a score below it would beat a masked entry.
_FILL = -10000.0


def _check_mask(mask: Tensor, shape: torch.Size) -> None:
    check(mask.dtype in {torch.bool, torch.uint8}, "mask", mask, "must be a bool tensor, True where masked")
    fits = mask.dim() <= len(shape) and all(
        size in {1, full} for size, full in zip(reversed(mask.shape), reversed(shape), strict=False)
    )
    check(fits, "mask", mask, f"must broadcast to {tuple(shape)}")


@register(
    "npu_scaled_masked_softmax(Tensor x, Tensor mask, Scalar scale=1, bool fixed_triu_mask=False) -> Tensor",
    source="op-plugin schema, manual and test: masked entries become -10000 before the softmax over the last dimension",
)
def scaled_masked_softmax(run: Precision, x: Tensor, mask: Tensor, scale: float) -> Tensor:
    check(x.dim() > 0, "x", x, "needs at least one dimension")
    _check_mask(mask, x.shape)
    scores = (run.up(x) * scale).masked_fill(mask.bool(), _FILL)
    return run.down(torch.softmax(scores, -1), x.dtype)


@register(
    "npu_scaled_masked_softmax_backward(Tensor y_grad, Tensor y, Tensor mask, Scalar scale, bool fixed_triu_mask) "
    "-> Tensor",
    source="op-plugin schema; scale·y·(dy − Σ dy·y), 0 where masked",
    backward_of="npu_scaled_masked_softmax",
)
def scaled_masked_softmax_backward(
    run: Precision, y_grad: Tensor, y: Tensor, mask: Tensor, scale: float, fixed_triu_mask: bool
) -> Tensor:
    check(not fixed_triu_mask, "fixed_triu_mask", fixed_triu_mask, "is reserved: only False is usable")
    check(y_grad.shape == y.shape, "y_grad", y_grad, f"must have y's shape {tuple(y.shape)}")
    _check_mask(mask, y.shape)
    p, dy = run.up(y), run.up(y_grad)
    dx = scale * p * (dy - (dy * p).sum(-1, keepdim=True))
    return run.down(dx.masked_fill(mask.bool(), 0.0), y.dtype)

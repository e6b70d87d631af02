"""Softmax fused with scaling and masking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .errors import check
from .movement import fresh
from .ordering import check_dim
from .precision import Precision
from .registry import register

# A finite fill: a fully masked row is uniform, and a score below it would beat a masked entry.
_FILL = -10000.0
_MASK_ALIGNMENT = 128


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


def _random_parts(bound: Mapping[str, Any]) -> dict[int, str]:
    reasons = {0: "the mask comes from the device's random generator and is padded to 128"}
    if bound["prob"] != 0:
        reasons[2] = "depends on the dropout mask"
    return reasons


@register(
    "npu_dropout_with_add_softmax(Tensor self, Tensor x1, Scalar alpha, float prob, int dim) "
    "-> (Tensor mask, Tensor result_softmax, Tensor result_dropout)",
    source="op-plugin schema, manual, host code and test: softmax(x1 + alpha·self); prob is the share that is dropped",
    deterministic=False,
    uncompared=_random_parts,
    uncompared_note="the mask; result_dropout unless prob is 0",
)
def dropout_with_add_softmax(
    run: Precision, self: Tensor, x1: Tensor, alpha: float, prob: float, dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    check(self.shape == x1.shape, "x1", x1, f"must have self's shape {tuple(self.shape)}")
    check(0 <= prob < 1, "prob", prob, "must lie in [0, 1)")
    check_dim(self, dim)
    result = torch.softmax(run.up(x1) + alpha * run.up(self), dim)
    length = -(-self.numel() // _MASK_ALIGNMENT) * _MASK_ALIGNMENT
    mask = torch.ones(length, dtype=torch.uint8, device=self.device)
    # With a probability above 0 the values depend on a mask that nobody captured.
    dropped = result if prob == 0 else torch.full_like(result, torch.nan)
    return mask, run.down(result, x1.dtype), run.down(dropped, self.dtype)


@register(
    "npu_dropout_with_add_softmax_backward(Tensor grad, Tensor mask, Tensor softmax_out, Scalar alpha, float prob, "
    "int dim) -> (Tensor dself, Tensor dx1)",
    source="op-plugin schema and host code: alpha times the softmax gradient of the dropped grad. The host code "
    "returns "
    "grad itself as the second value, where mathematics asks for the softmax gradient; the host code is followed",
    backward_of="npu_dropout_with_add_softmax",
)
def dropout_with_add_softmax_backward(
    run: Precision, grad: Tensor, mask: Tensor, softmax_out: Tensor, alpha: float, prob: float, dim: int
) -> tuple[Tensor, Tensor]:
    check(grad.shape == softmax_out.shape, "grad", grad, f"must have softmax_out's shape {tuple(softmax_out.shape)}")
    check(0 <= prob < 1, "prob", prob, "must lie in [0, 1)")
    check(mask.numel() >= grad.numel(), "mask", mask, f"must hold at least {grad.numel()} elements")
    check_dim(grad, dim)
    p = run.up(softmax_out)
    kept = (mask.reshape(-1)[: grad.numel()] != 0).reshape(grad.shape)
    dp = run.up(grad) * kept / (1 - prob)
    dself = alpha * p * (dp - (dp * p).sum(dim, keepdim=True))
    return run.down(dself, softmax_out.dtype), fresh(run, grad)

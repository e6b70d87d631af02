"""Cross entropy losses."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register

_NOT_IN_USE = "z-loss is not supported by the operator yet: the output is empty"
_REDUCTIONS = ("mean", "sum", "none")


def _targets(
    run: Precision, rows: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Class weights [C], every row's own weight and whether it counts, both [N]."""
    check(rows.dim() == 2, "input", rows, "must be [N, C]")
    count, classes = rows.shape
    check(reduction in _REDUCTIONS, "reduction", reduction, f"must be one of {', '.join(_REDUCTIONS)}")
    check(tuple(target.shape) == (count,), "target", target, f"must have the shape [{count}]")
    # A negative ignore_index ignores nothing, and the class must exist.
    ignored = target == ignore_index if ignore_index >= 0 else torch.zeros_like(target, dtype=torch.bool)
    valid = ignored | ((target >= 0) & (target < classes))
    check(bool(valid.all()), "target", target, f"must lie in [0, {classes})")
    if weight is None:
        weights = rows.new_ones(classes, dtype=run.dtype(rows.dtype))
    else:
        check(tuple(weight.shape) == (classes,), "weight", weight, f"must have the shape [{classes}]")
        weights = run.up(weight).to(run.dtype(rows.dtype))
    counts = (~ignored).to(weights.dtype)
    return weights, weights[target.clamp(0, classes - 1)], counts


@register(
    "npu_cross_entropy_loss(Tensor input, Tensor target, Tensor? weight=None, str reduction='mean', "
    "int ignore_index=-100, float label_smoothing=0.0, float lse_square_scale_for_zloss=0.0, bool return_zloss=False) "
    "-> (Tensor loss, Tensor log_prob, Tensor zloss, Tensor lse_for_zloss)",
    source="op-plugin schema, manual and test; log_prob has the input's dtype; a negative ignore_index ignores "
    "nothing, "
    "unlike torch.nn.functional.cross_entropy's -100",
    uncompared={2: _NOT_IN_USE, 3: _NOT_IN_USE},
)
def cross_entropy_loss(
    run: Precision,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    check(0 <= label_smoothing < 1, "label_smoothing", label_smoothing, "must lie in [0, 1)")
    weights, own, counts = _targets(run, input, target, weight, reduction, ignore_index)
    log_prob = torch.log_softmax(run.up(input), -1)
    classes = input.shape[1]
    picked = log_prob.gather(1, target.clamp(0, classes - 1).unsqueeze(1)).squeeze(1)
    hard = -picked * own * counts
    smooth = -(log_prob * weights).sum(-1) * counts
    loss = (1 - label_smoothing) * hard + label_smoothing / classes * smooth
    if reduction != "none":
        loss = loss.sum().reshape(1)
    if reduction == "mean":
        loss = loss / (own * counts).sum()
    empty = input.new_empty(0)
    return run.down(loss, input.dtype), run.down(log_prob, input.dtype), empty, empty.clone()


@register(
    "npu_cross_entropy_loss_backward(Tensor grad_loss, Tensor log_prob, Tensor target, Tensor? weight=None, "
    "Tensor? grad_zloss=None, Tensor? lse_for_zloss=None, str reduction='mean', int ignore_index=-100, "
    "float label_smoothing=0.0, float lse_square_scale_for_zloss=0.0) -> Tensor",
    source="op-plugin schema and derivatives; the derivative of npu_cross_entropy_loss from its log_prob",
    backward_of="npu_cross_entropy_loss",
    # Autograd hands the empty z-loss tensors on; the scale stays at its default, so they have no effect.
    inert=("grad_zloss", "lse_for_zloss"),
)
def cross_entropy_loss_backward(
    run: Precision,
    grad_loss: Tensor,
    log_prob: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> Tensor:
    weights, own, counts = _targets(run, log_prob, target, weight, reduction, ignore_index)
    rows, classes = log_prob.shape
    expected = rows if reduction == "none" else 1
    check(grad_loss.numel() == expected, "grad_loss", grad_loss, f"must hold {expected} elements")
    probability = torch.exp(run.up(log_prob))
    picked = torch.zeros_like(probability).scatter_(1, target.clamp(0, classes - 1).unsqueeze(1), 1.0)
    hard = own.unsqueeze(1) * (probability - picked)
    smooth = probability * weights.sum() - weights
    factor = run.up(grad_loss).reshape(-1) * counts
    if reduction == "mean":
        factor = factor / (own * counts).sum()
    gradient = (1 - label_smoothing) * hard + label_smoothing / classes * smooth
    return run.down(factor.unsqueeze(1) * gradient, grad_loss.dtype)


@register(
    "npu_softmax_cross_entropy_with_logits(Tensor self, Tensor labels) -> Tensor",
    source="op-plugin schema, manual and host code: −Σ labels·log softmax(self) over the last dimension",
)
def softmax_cross_entropy_with_logits(run: Precision, self: Tensor, labels: Tensor) -> Tensor:
    _check_labels(self, labels)
    return run.down(-(run.up(labels) * torch.log_softmax(run.up(self), -1)).sum(-1), self.dtype)


@register(
    "npu_softmax_cross_entropy_with_logits_backward(Tensor grad, Tensor self, Tensor labels) -> Tensor",
    source="op-plugin schema and host code: grad times the kernel's second output, softmax(self) − labels; for labels "
    "that do not sum to 1 mathematics asks for softmax(self)·Σ labels − labels, the kernel is followed",
    backward_of="npu_softmax_cross_entropy_with_logits",
)
def softmax_cross_entropy_with_logits_backward(run: Precision, grad: Tensor, self: Tensor, labels: Tensor) -> Tensor:
    _check_labels(self, labels)
    check(grad.shape == self.shape[:-1], "grad", grad, f"must have the shape {tuple(self.shape[:-1])}")
    gradient = (torch.softmax(run.up(self), -1) - run.up(labels)) * run.up(grad).unsqueeze(-1)
    return run.down(gradient, self.dtype)


def _check_labels(self: Tensor, labels: Tensor) -> None:
    check(self.dim() > 0, "self", self, "needs at least one dimension")
    check(labels.shape == self.shape, "labels", labels, f"must have self's shape {tuple(self.shape)}")

"""Fused optimiser steps: pure functions of the state before the step.

The device writes var, m and v in place; the reference leaves the given tensors alone and returns the three new values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register

_STATE = "*, Tensor(a!) var, Tensor(b!) m, Tensor(c!) v) -> (Tensor(a!), Tensor(b!), Tensor(c!))"


def _check_shapes(var: Tensor, **others: Tensor) -> None:
    for name, tensor in others.items():
        check(tensor.shape == var.shape, name, tensor, f"must have var's shape {tuple(var.shape)}")


@register(
    "npu_apply_adam.out(Scalar beta1_power, Scalar beta2_power, Scalar lr, Scalar beta1, Scalar beta2, Scalar epsilon, "
    f"Tensor grad, bool? use_locking, bool? use_nesterov, {_STATE}",
    aliases=("npu_apply_adam_out",),
    source="op-plugin schema, manual and host code: the powers are used as given, epsilon is added to √v; "
    "the functional overload raises on the device",
    inert=("use_locking",),
)
def apply_adam(
    run: Precision,
    beta1_power: float,
    beta2_power: float,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    use_nesterov: bool | None,
    var: Tensor,
    m: Tensor,
    v: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    _check_shapes(var, m=m, v=v, grad=grad)
    g, w = run.up(grad), run.up(var)
    m_new = run.up(m) + (1 - beta1) * (g - run.up(m))
    v_new = run.up(v) + (1 - beta2) * (g * g - run.up(v))
    # Tensor division: a power of exactly 1 gives the device's Inf or NaN, not a ZeroDivisionError.
    rate = lr * _number(w, 1 - beta2_power).sqrt() / _number(w, 1 - beta1_power)
    step = m_new * beta1 + (1 - beta1) * g if use_nesterov else m_new
    w_new = w - rate * step / (epsilon + v_new.sqrt())
    return run.down(w_new, var.dtype), run.down(m_new, m.dtype), run.down(v_new, v.dtype)


@register(
    "npu_apply_adam_w.out(Scalar beta1_power, Scalar beta2_power, Scalar lr, Scalar weight_decay, Scalar beta1, "
    "Scalar beta2, Scalar epsilon, Tensor grad, Tensor? max_grad_norm, bool? amsgrad, bool? maximize, "
    f"{_STATE}",
    aliases=("npu_apply_adam_w_out",),
    source="op-plugin schema, test and kernel golden: both powers are advanced first, epsilon stands outside the "
    "corrected root. Under amsgrad the test and the golden return v without the maximum, the kernel's documentation "
    "says that it stores the maximum; v without it is returned and not compared",
    uncompared_note="v under amsgrad",
    uncompared=lambda bound: (
        {2: "amsgrad: the sources disagree whether v holds the maximum"} if bound["amsgrad"] else {}
    ),
)
def apply_adam_w(
    run: Precision,
    beta1_power: float,
    beta2_power: float,
    lr: float,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    max_grad_norm: Tensor | None,
    amsgrad: bool | None,
    maximize: bool | None,
    var: Tensor,
    m: Tensor,
    v: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    _check_shapes(var, m=m, v=v, grad=grad)
    g, w = run.up(grad), run.up(var)
    if maximize:
        g = -g
    m_new = beta1 * run.up(m) + (1 - beta1) * g
    v_new = beta2 * run.up(v) + (1 - beta2) * g * g
    second = v_new
    if amsgrad:
        check(max_grad_norm is not None, "max_grad_norm", max_grad_norm, "is required when amsgrad is True")
        assert max_grad_norm is not None
        _check_shapes(var, max_grad_norm=max_grad_norm)
        second = torch.maximum(run.up(max_grad_norm), v_new)
    first = m_new / _number(w, 1 - beta1_power * beta1)
    root = (second / _number(w, 1 - beta2_power * beta2)).sqrt() + epsilon
    w_new = w * (1 - lr * weight_decay) - lr * first / root
    return run.down(w_new, var.dtype), run.down(m_new, m.dtype), run.down(v_new, v.dtype)


def _number(like: Tensor, value: float) -> Tensor:
    return torch.tensor(value, dtype=like.dtype, device=like.device)

"""Calls whose outputs cannot be held against a replay: random ones, and those without a defined value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .names import base_name, functional_name

_RANDOM = frozenset(
    """
    rand randn randint randperm rand_like randn_like randint_like normal bernoulli multinomial uniform exponential
    geometric cauchy log_normal random poisson binomial standard_gamma gumbel_softmax fractional_max_pool2d
    fractional_max_pool3d fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices alpha_dropout
    feature_alpha_dropout _sample_dirichlet xavier_uniform xavier_normal kaiming_uniform kaiming_normal trunc_normal
    orthogonal rrelu_with_noise npu_random_choice_with_mask npu_dropout_gen_mask dropout_gen_mask npu_random
    """.split()
)
_DROPOUTS = frozenset(
    "dropout native_dropout feature_dropout dropout1d dropout2d dropout3d npu_dropout _npu_dropout".split()
)
_CHANNELWISE = frozenset("feature_dropout dropout1d dropout2d dropout3d".split())
_UNDEFINED = frozenset(
    "empty empty_like new_empty empty_strided new_empty_strided empty_permuted empty_quantized resize resize_as".split()
)
# Attention and recurrent calls that drop at random: the argument that says so, and where it stands.
_DROP_ARGUMENTS: Mapping[str, tuple[str, int]] = {
    "scaled_dot_product_attention": ("dropout_p", 4),
    "_scaled_dot_product_flash_attention": ("dropout_p", 3),
    "_scaled_dot_product_efficient_attention": ("dropout_p", 5),
    "_scaled_dot_product_flash_attention_for_cpu": ("dropout_p", 3),
    "multi_head_attention_forward": ("dropout_p", 10),
}


def is_random(api: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> str | None:
    """Why a call cannot be replayed because it is random; None for calls that can, dropout among them."""
    name = functional_name(base_name(api))
    options = kwargs or {}
    if name in _RANDOM:
        return f"random: {name} draws new numbers on every run"
    if name == "rrelu" and _argument(args, options, "training", 3, False):
        return "random: rrelu with training=True"
    found = _DROP_ARGUMENTS.get(name)
    if found is not None and _number(_argument(args, options, *found, 0.0)) > 0:
        if name == "multi_head_attention_forward" and not _argument(args, options, "training", 13, True):
            return None
        return f"random: {name} with {found[0]} above 0"
    return None


def is_undefined(api: str) -> str | None:
    """Why an API's output has no defined value; None where it has one."""
    name = functional_name(base_name(api))
    return f"undefined: {name} returns uninitialised memory" if name in _UNDEFINED else None


def dropout_rate(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float | None:
    """The rate of a dropout call that really drops; None for other calls and for p = 0, p = 1 or evaluation."""
    name = functional_name(base_name(api))
    if name not in _DROPOUTS:
        return None
    default_p = 0.0 if name.startswith("native") else 0.5
    rate = _number(_argument(args, kwargs, "p", 1, default_p))
    training = _argument(args, kwargs, "train" if "train" in kwargs else "training", 2, True)
    return rate if training is not False and 0 < rate < 1 else None


def dropout_fault(api: str, device: torch.Tensor, source: torch.Tensor, rate: float) -> str | None:
    """What is wrong with a dropout's output: survivors must be x / (1 - p), zeros as many as chance allows."""
    if device.shape != source.shape:
        return f"shape: {tuple(device.shape)} against the input's {tuple(source.shape)}"
    x, y = source.detach().double().reshape(-1), device.detach().double().reshape(-1)
    zero = y == 0
    survivors = ~zero
    expected = x / (1 - rate)
    resolution = torch.finfo(device.dtype)
    tolerance = 2 * resolution.eps * expected.abs() + 2 * resolution.smallest_normal * resolution.eps
    both_nan = x.isnan() & y.isnan()
    wrong = survivors & ~((y - expected).abs() <= tolerance) & (y != expected) & ~both_nan
    if bool(wrong.any()):
        place = int(wrong.to(torch.uint8).argmax())
        return (
            f"survivor {place} is {float(y[place]):.6g}, must be x / (1 - p) = {float(expected[place]):.6g}; "
            f"{int(wrong.sum())} survivors are wrong"
        )
    # An input below the smallest number of the dtype may underflow to zero by itself.
    drawn = expected.abs() > resolution.tiny
    count, dropped = int(drawn.sum()), int((zero & drawn).sum())
    if functional_name(base_name(api)) in _CHANNELWISE:
        return None
    spread = math.sqrt(count * rate * (1 - rate))
    if abs(dropped - count * rate) > 6 * spread + 1 + (2 if count < 100 else 0):
        return f"{dropped} of {count} elements dropped, far from p = {rate:g}"
    return None


def _argument(args: Sequence[Any], kwargs: Mapping[str, Any], name: str, place: int, default: Any) -> Any:
    if name in kwargs:
        return kwargs[name]
    return args[place] if len(args) > place else default


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0

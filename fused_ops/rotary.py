"""Rotary position embedding: y = x·cos + rot(x)·sin along the last dimension."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register

_PARTS = {"half": 2, "interleave": 2, "interleave-half": 2, "quarter": 4}


def rotated(x: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """x as the mode orders it, and rot(x)."""
    check(mode in _PARTS, "rotary_mode", mode, f"must be one of {', '.join(_PARTS)}")
    size = x.shape[-1]
    check(size % _PARTS[mode] == 0, "self", x, f"the last dimension must be divisible by {_PARTS[mode]} for {mode}")
    if mode == "half":
        first, second = x.chunk(2, -1)
        return x, torch.cat([-second, first], -1)
    if mode == "quarter":
        one, two, three, four = x.chunk(4, -1)
        return x, torch.cat([-two, one, -four, three], -1)
    even, odd = x[..., 0::2], x[..., 1::2]
    if mode == "interleave":
        return x, torch.stack([-odd, even], -1).flatten(-2)
    return torch.cat([even, odd], -1), torch.cat([-odd, even], -1)


def unrotated(ordered: Tensor, rotation: Tensor, mode: str) -> Tensor:
    """The transpose of `rotated`: the gradient of x from the gradients of its two results."""
    if mode == "half":
        first, second = rotation.chunk(2, -1)
        return ordered + torch.cat([second, -first], -1)
    if mode == "quarter":
        one, two, three, four = rotation.chunk(4, -1)
        return ordered + torch.cat([two, -one, four, -three], -1)
    if mode == "interleave":
        return ordered + torch.stack([rotation[..., 1::2], -rotation[..., 0::2]], -1).flatten(-2)
    even, odd = ordered.chunk(2, -1)
    minus_odd, plus_even = rotation.chunk(2, -1)
    return torch.stack([even + plus_even, odd - minus_odd], -1).flatten(-2)


def check_angles(x: Tensor, r1: Tensor, r2: Tensor) -> None:
    """cos and sin must broadcast to x."""
    check(x.dim() > 0, "self", x, "needs at least one dimension")
    for name, angle in (("r1", r1), ("r2", r2)):
        fits = angle.dim() <= x.dim() and all(
            size in {1, full} for size, full in zip(reversed(angle.shape), reversed(x.shape), strict=False)
        )
        check(fits, name, angle, f"must broadcast to {tuple(x.shape)}")


@register(
    "npu_rotary_mul(Tensor self, Tensor r1, Tensor r2, str rotary_mode='half', Tensor? rotate=None) -> Tensor",
    source="op-plugin schema and manual; r1 and r2 are cast to self's dtype first; with rotate, rot(x) = x·rotate as "
    "given (the manual's own example matrix lacks a sign, which is the caller's business)",
)
def rotary_mul(run: Precision, self: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str, rotate: Tensor | None) -> Tensor:
    check_angles(self, r1, r2)
    x = run.up(self)
    if rotate is None:
        ordered, rotation = rotated(x, rotary_mode)
    else:
        size = self.shape[-1]
        check(tuple(rotate.shape[-2:]) == (size, size), "rotate", rotate, f"must be a [{size}, {size}] matrix")
        ordered, rotation = x, x @ run.up(rotate)
    cos, sin = run.up(r1.to(self.dtype)), run.up(r2.to(self.dtype))
    return run.down(ordered * cos + rotation * sin, self.dtype)


def _undefined_angles(bound: Any) -> dict[int, str]:
    if bound["r1"].requires_grad or bound["r2"].requires_grad:
        return {}
    reason = "uninitialised: neither r1 nor r2 requires grad"
    return {1: reason, 2: reason}


@register(
    "npu_rotary_mul_backward(Tensor grad, Tensor self, Tensor r1, Tensor r2, str rotary_mode='half') "
    "-> (Tensor dx, Tensor dr1, Tensor dr2)",
    source="op-plugin schema, derivatives and host code: dr1 and dr2 are uninitialised unless r1 or r2 requires grad",
    backward_of="npu_rotary_mul",
    uncompared=_undefined_angles,
    uncompared_note="dr1 and dr2 where neither r1 nor r2 requires grad: they are uninitialised",
)
def rotary_mul_backward(
    run: Precision, grad: Tensor, self: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    check_angles(self, r1, r2)
    check(grad.shape == self.shape, "grad", grad, f"must have self's shape {tuple(self.shape)}")
    dy = run.up(grad)
    ordered, rotation = rotated(run.up(self), rotary_mode)
    cos, sin = run.up(r1.to(self.dtype)), run.up(r2.to(self.dtype))
    dx = unrotated(dy * cos, dy * sin, rotary_mode)
    dr1 = (dy * ordered).sum_to_size(r1.shape)
    dr2 = (dy * rotation).sum_to_size(r2.shape)
    return run.down(dx, self.dtype), run.down(dr1, self.dtype), run.down(dr2, self.dtype)

"""What one sweep over a pair adds up, whichever loop does it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from .dtypes import Format


@dataclass(frozen=True)
class Thresholds:
    """What the sweep counts against; see `limits.MEANING`."""

    small_value: float
    small_value_atol: float
    benchmark_atol: float
    rtol: float
    ulp_threshold: float


@dataclass
class Totals:
    """What one sweep has added up. `size` counts the remaining elements, `set_aside` those with inf or nan.

    `beyond_rounding` counts elements not within a thousandth that half a ULP does not explain either.
    """

    size: int = 0
    set_aside: int = 0
    special_errors: int = 0
    device_special: int = 0
    unequal: int = 0
    above: int = 0
    below: int = 0
    within_hundredth: int = 0
    within_thousandth: int = 0
    within_ten_thousandth: int = 0
    beyond_rounding: int = 0
    small: int = 0
    small_above_atol: int = 0
    small_above_benchmark_atol: int = 0
    normal_above_rtol: int = 0
    max_abs: float = 0.0
    max_abs_at: int = 0
    max_rel: float = 0.0
    max_rel_at: int = 0
    max_rel_normal: float = 0.0
    sum_rel_normal: float = 0.0
    squares_normal: float = 0.0
    squares_small: float = 0.0
    max_ulp: float = 0.0
    sum_ulp: float = 0.0
    ulp_above: int = 0
    bench_largest: float = 0.0
    device_largest: float = 0.0
    sides: Sides | None = None

    @property
    def normal(self) -> int:
        """Elements that are neither set aside nor small."""
        return self.size - self.small


@dataclass
class Sides:
    """Statistics of each side and the relative error against the bench itself, zero included."""

    device_max: float = -math.inf
    device_min: float = math.inf
    device_sum: float = 0.0
    device_squares: float = 0.0
    bench_max: float = -math.inf
    bench_min: float = math.inf
    bench_sum: float = 0.0
    bench_squares: float = 0.0
    products: float = 0.0
    cosine: float | None = None
    max_relative: float = 0.0
    relative_below_thousandth: int = 0
    relative_below_five_thousandths: int = 0


def set_aside(totals: Totals, n: Any, b: Any, form: Format, eps: float, rtol: float) -> None:
    """Count elements with inf or nan, and those of them that differ beyond the ends of the finite range."""
    device, bench = torch.as_tensor(n).double(), torch.as_tensor(b).double()
    totals.set_aside += device.numel()
    totals.device_special += int((~torch.isfinite(device)).sum())
    end = form.largest if math.isfinite(form.largest) else torch.finfo(torch.float64).max
    low, high = device.clamp(-end, end), bench.clamp(-end, end)
    far = ~((low - high).abs() / (bench.abs() + eps) <= rtol)
    same = (low == high) | (device.isnan() & bench.isnan())
    totals.special_errors += int((far & ~same).sum())


def cosine_of(sides: Sides) -> float:
    """N·B / (|N| |B|), clipped to [-1, 1]; nan where a side has no length."""
    if sides.cosine is not None:
        return sides.cosine
    length = math.sqrt(sides.device_squares) * math.sqrt(sides.bench_squares)
    if not 0 < length < math.inf:
        return math.nan
    return max(-1.0, min(1.0, sides.products / length))


def scaled_cosine(n: torch.Tensor, b: torch.Tensor) -> float:
    """The cosine of float64 sides whose squares overflow: each divided by a number of its own size."""
    both = torch.isfinite(n) & torch.isfinite(b)
    device, bench = (side.double()[both] for side in (n, b))
    device, bench = device / device.abs().max(), bench / bench.abs().max()
    return max(-1.0, min(1.0, float(device @ bench / (device.norm() * bench.norm()))))

"""The metrics of one pair, by name, from what a sweep has added up."""

from __future__ import annotations

import math
import sys
from typing import TypeAlias

from .totals import Sides, Totals, cosine_of

Value: TypeAlias = float | int | bool | str | None
Metrics: TypeAlias = dict[str, Value]

_EPS = sys.float_info.epsilon


def metrics_of(totals: Totals) -> Metrics:
    """Every metric of a float pair; None where it is not computed. Nothing remaining leaves only the special share."""
    t = totals
    special = t.special_errors / t.set_aside if t.set_aside else 0.0
    if t.size == 0:
        return {"inf_nan_share": special, "elements": 0, "set_aside": t.set_aside}
    normal = t.normal
    found: Metrics = {
        "cosine": None,
        "max_abs_err": t.max_abs,
        "hundredth": t.within_hundredth / t.size,
        "thousandth": t.within_thousandth / t.size,
        "ten_thousandth": t.within_ten_thousandth / t.size,
        "error_rate": t.unequal / t.size,
        "eb": abs(t.above - t.below) / t.size,
        "rmse": math.sqrt(t.squares_normal / normal) if normal else 0.0,
        "small_value_share": t.small_above_benchmark_atol / t.small if t.small else 0.0,
        "max_rel_err": t.max_rel_normal if normal else 0.0,
        "mean_rel_err": t.sum_rel_normal / normal if normal else 0.0,
        "inf_nan_share": special,
        "rel_err_share": t.normal_above_rtol / normal if normal else 0.0,
        "abs_err_share": t.small_above_atol / t.small if t.small else 0.0,
        "max_ulp": t.max_ulp,
        "mean_ulp": t.sum_ulp / t.size,
        "ulp_share": t.ulp_above / t.size,
        "elements": t.size,
        "set_aside": t.set_aside,
        "small_values": t.small,
    }
    if t.sides is not None:
        found.update(_sides(t, t.sides))
    return found


def _sides(t: Totals, s: Sides) -> Metrics:
    device_zero = max(abs(s.device_max), abs(s.device_min)) <= _EPS
    bench_zero = max(abs(s.bench_max), abs(s.bench_min)) <= _EPS
    cosine: float | None
    if t.size == 1 or (device_zero and bench_zero):
        cosine, met = None, True
    elif device_zero or bench_zero:
        cosine, met = None, False
    else:
        cosine = cosine_of(s)
        met = not math.isnan(cosine)
    return {
        "cosine": cosine,
        "cosine_computable": met,
        "euclidean_distance": math.sqrt(t.squares_normal + t.squares_small),
        "max_relative_err": s.max_relative,
        "one_thousandth_ratio": s.relative_below_thousandth / t.size,
        "five_thousandth_ratio": s.relative_below_five_thousandths / t.size,
        "device_max": s.device_max,
        "device_min": s.device_min,
        "device_mean": s.device_sum / t.size,
        "device_norm": math.sqrt(s.device_squares),
        "bench_max": s.bench_max,
        "bench_min": s.bench_min,
        "bench_mean": s.bench_sum / t.size,
        "bench_norm": math.sqrt(s.bench_squares),
    }


def number(metrics: Metrics, name: str) -> float:
    """A metric as a number; nan where it is not computed."""
    value = metrics.get(name)
    return math.nan if value is None or isinstance(value, str) else float(value)

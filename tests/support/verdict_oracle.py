"""A verdict computed the slow way, in float64 and straight from the written rules, without rounding-noise relief.

It says what the limits allow: the fault table asks that four times as much is always found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

EMIN = {torch.float16: -14, torch.bfloat16: -126, torch.float32: -126}
MANTISSA = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23}
EPS = {torch.float16: 2.0**-10, torch.float32: 2.0**-23, torch.float64: 2.0**-52}


def brute_metrics(
    error: np.ndarray, bench: np.ndarray, dtype: torch.dtype, bench_dtype: torch.dtype, limits: Mapping[str, float]
) -> dict[str, float]:
    """Metrics from the errors N - B of finite outputs, by the definitions of the standards."""
    absolute, magnitude = np.abs(error), np.abs(bench)
    eps = 2.0**-8 if dtype is torch.bfloat16 else EPS[bench_dtype]
    relative = absolute / (magnitude + eps)
    small = magnitude <= limits["small_value"]
    normal = ~small
    exponent = np.full(bench.shape, float(EMIN[dtype]))
    nonzero = magnitude > 0
    exponent[nonzero] = np.maximum(np.frexp(magnitude[nonzero])[1] - 1, EMIN[dtype])
    ulps = absolute * np.exp2(MANTISSA[dtype] - exponent)

    def share(part: np.ndarray, whole: np.ndarray) -> float:
        return float(part.sum() / whole.sum()) if whole.sum() else 0.0

    device = bench + error
    lengths = np.linalg.norm(device) * np.linalg.norm(bench)
    everything = np.ones_like(small)
    return {
        "cosine": float(device.reshape(-1) @ bench.reshape(-1) / lengths) if lengths > 0 else math.nan,
        "max_abs_err": float(absolute.max()),
        "hundredth": share(relative < 1e-2, everything),
        "thousandth": share(relative < 1e-3, everything),
        "ten_thousandth": share(relative < 1e-4, everything),
        "error_rate": share(error != 0, everything),
        "rmse": float(np.sqrt((absolute[normal] ** 2).mean())) if normal.any() else 0.0,
        "small_value_share": share(small & (absolute > limits["benchmark_atol"]), small),
        "max_rel_err": float(relative[normal].max()) if normal.any() else 0.0,
        "mean_rel_err": float(relative[normal].mean()) if normal.any() else 0.0,
        "rel_err_share": share(normal & (relative > limits["rtol"]), normal),
        "abs_err_share": share(small & (absolute > limits["small_value_atol"]), small),
        "max_ulp": float(ulps.max()),
        "mean_ulp": float(ulps.mean()),
        "ulp_share": share(ulps > limits["ulp_threshold"], everything),
        "euclidean_distance": float(np.linalg.norm(error)),
    }


def limits_fail(
    error: torch.Tensor,
    bench: torch.Tensor,
    reference: torch.Tensor,
    dtype: torch.dtype,
    standard: str,
    limits: Mapping[str, float],
) -> bool:
    """Whether an output with these errors breaks the ladder, its standard or the outlier rule."""
    half = dtype is not torch.float32
    largest = float(bench.double().abs().max())
    exponent = max(math.frexp(largest)[1] - 1, EMIN[dtype]) if largest else EMIN[dtype]
    step = 2.0 ** (exponent - MANTISSA[dtype])
    error = torch.where(error.double().abs() <= limits["internal_ulp"] * step, 0.0, error.double())
    best, own = bench.double().numpy(), (reference.double() - bench.double()).numpy()
    found = brute_metrics(error.double().numpy(), best, dtype, bench.dtype, limits)
    theirs = brute_metrics(own, best, dtype, bench.dtype, limits)
    yardstick = limits["outlier_ulp"] * step
    if found["max_abs_err"] > limits["outlier_factor"] * max(theirs["max_abs_err"], yardstick):
        return True
    if best.size > 1 and not found["cosine"] > limits["cosine"]:
        return True
    ladder = found["hundredth"] > 0.99 if half else found["thousandth"] > 0.999
    if found["max_abs_err"] >= limits["max_abs_err"] and not ladder:
        return True

    def over(metric: str, limit: str, floor: float) -> bool:
        return found[metric] / max(theirs[metric], floor) > limits[limit]

    floor = limits["min_err"]
    if standard == "binary consistency":
        return found["error_rate"] > 0
    if standard == "absolute threshold":
        return found["rel_err_share"] > 0 or found["abs_err_share"] > 0
    if standard == "thousandth":
        return found["thousandth"] < limits["thousandth_share"]
    if standard == "ULP":
        ratio = found["ulp_share"] / max(theirs["ulp_share"], floor)
        fine = found["ulp_share"] < limits["ulp_share"] or ratio < 1 or found["mean_ulp"] < limits["ulp_mean"]
        return not fine
    return (
        over("small_value_share", "small_value_ratio", floor)
        or over("rmse", "rmse_ratio", floor * max(1.0, largest))
        or over("max_rel_err", "max_rel_ratio", floor)
        or over("mean_rel_err", "mean_rel_ratio", floor)
    )


def allowed_size(
    pattern: torch.Tensor,
    bench: torch.Tensor,
    reference: torch.Tensor,
    dtype: torch.dtype,
    standard: str,
    limits: Mapping[str, float],
) -> float:
    """The largest multiple of an error pattern that the limits allow, to five per cent; inf where they allow all."""

    def fails(size: float) -> bool:
        return limits_fail(pattern * size, bench, reference, dtype, standard, limits)

    low, high = 1e-12, 1e12
    if fails(low):
        return low
    if not fails(high):
        return math.inf
    while high / low > 1.05:
        middle = math.sqrt(low * high)
        if fails(middle):
            high = middle
        else:
            low = middle
    return low

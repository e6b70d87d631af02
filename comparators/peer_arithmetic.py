"""The profile `msprobe-8.3`: number for number what mindstudio-probe 8.3.0 computes, in its dtypes and on whole arrays.

Parity needs the same roundings: squares and means in the bench's own dtype, thresholds rounded to it, NumPy's pairwise
sums. So this profile computes on NumPy arrays of full size; the sweep in chunks is for the other profiles. The holes of
the peer are kept on purpose: nan passes some of its standards, and its two-way status is the ladder alone.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .ladder import ladder
from .metrics import Metrics
from .names import ABSOLUTE, ACCUMULATIVE, BENCHMARK, BINARY, THOUSANDTH, THREE_WAY, ULP
from .profiles import Limits, Profile
from .result import OutputJudgement
from .standards import judge_standard

Floats = npt.NDArray[Any]
_SUPPORTED = frozenset({torch.float16, torch.bfloat16, torch.float32})
# Largest finite bfloat16, to which the peer clips, and the eps that it adds for it.
_BF16_LARGEST = 3.3895313892515355e38
_BF16_EPS = 2.0**-8
_NUMPY_BUFFER = 8192
_ULP = {torch.float16: (-14, 10), torch.bfloat16: (-126, 7), torch.float32: (-126, 23)}


def judge_as_peer(
    api: str,
    profile: Profile,
    blank: OutputJudgement,
    device: torch.Tensor,
    reference: torch.Tensor,
    golden: torch.Tensor | None,
) -> OutputJudgement:
    """Judge one output as the peer does; its three-way result is the standard's, its two-way result the ladder's."""
    standard = profile.standard(api)[0]
    limits = profile.limits(api, str(device.dtype).removeprefix("torch."))
    if device.numel() == 0:
        return replace(blank, verdict="error", status="error", message="there is nothing to compare")
    if not device.is_floating_point():
        if device.is_complex():
            return replace(blank, message="complex outputs are not compared")
        rate = float((device != reference).sum()) / device.numel()
        finding = judge_standard(BINARY, {"error_rate": rate}, None, limits)
        return replace(
            blank,
            standard=BINARY,
            verdict=finding.status,
            status=finding.status,
            standard_status=finding.status,
            metrics={"error_rate": rate},
            checks=finding.checks,
        )
    three_way = golden is not None and standard in THREE_WAY
    bench = golden if golden is not None and three_way else reference
    metrics = peer_metrics(device, bench, standard, limits)
    status, reason, looked = ladder(metrics, device.dtype, limits)
    blank = replace(
        blank,
        bench_dtype=str(bench.dtype).removeprefix("torch."),
        metrics=metrics,
        status=status,
        looked=looked,
        message=f"ladder: {reason}" if status != "pass" else "",
        verdict=status,
    )
    if device.dtype not in _SUPPORTED:
        return blank
    own = peer_metrics(reference, bench, standard, limits) if three_way else None
    finding = judge_standard(standard, metrics, own, limits)
    if three_way:
        blank = replace(blank, verdict=finding.status, message=finding.message)
    return replace(
        blank,
        reference_metrics=own,
        standard_status=finding.status,
        checks=finding.checks,
        ratio=finding.ratio,
    )


def peer_metrics(device: torch.Tensor, bench: torch.Tensor, standard: str, limits: Limits) -> Metrics:
    """The peer's columns for a float output of an API with this standard."""
    dtype = device.dtype
    if dtype is torch.bfloat16:
        device, bench = device.float(), bench.float()
    n, b = device.cpu().numpy(), bench.cpu().numpy()
    with np.errstate(all="ignore"):
        absolute = np.abs(b)
        with_eps = absolute + (_BF16_EPS if dtype is torch.bfloat16 else np.finfo(b.dtype).eps)
        error = np.abs(n - b)
        relative = np.abs(error / with_eps)
        found: Metrics = {}
        if dtype in _SUPPORTED:
            found = _standard_columns(n, b, absolute, with_eps, error, relative, dtype, standard, limits)
        found.update(_ladder_columns(n, b, error, relative))
    return found


def _ladder_columns(n: Floats, b: Floats, error: Floats, relative: Floats) -> Metrics:
    cosine, computable = _cosine(n.reshape(-1), b.reshape(-1))
    shares = {
        name: float(np.sum(relative < limit) / relative.size)
        for name, limit in (("hundredth", 0.01), ("thousandth", 0.001), ("ten_thousandth", 0.0001))
    }
    return {"cosine": cosine, "cosine_computable": computable, "max_abs_err": float(error.max()), **shares}


def _cosine(n: Floats, b: Floats) -> tuple[float | None, bool]:
    if len(n) == 1:
        return None, True
    n_largest, b_largest = np.max(np.abs(n)), np.max(np.abs(b))
    eps = sys.float_info.epsilon
    if n_largest <= eps or b_largest <= eps:
        return None, bool(n_largest <= eps and b_largest <= eps)
    n, b = n.astype(float) / n_largest, b.astype(float) / b_largest
    cosine = np.dot(n, b) / (np.linalg.norm(n) * np.linalg.norm(b))
    return float(np.clip(cosine, -1, 1)), True


def _standard_columns(
    n: Floats,
    b: Floats,
    absolute: Floats,
    with_eps: Floats,
    error: Floats,
    relative: Floats,
    dtype: torch.dtype,
    standard: str,
    limits: Limits,
) -> Metrics:
    if standard == BINARY:
        return {"error_rate": float((b != n).sum() / b.size)}
    if standard == THOUSANDTH:
        return {}
    if standard == ULP:
        return _ulp_columns(n, b, dtype, limits)
    finite = np.isfinite(n) & np.isfinite(b.astype(n.dtype))
    accumulative = standard == ACCUMULATIVE
    small_value = limits["accumulative_small_value"] if accumulative else limits["small_value"]
    small = (absolute <= small_value) & finite
    if standard == BENCHMARK:
        return _benchmark_columns(n, b, error, with_eps, finite, small, limits)
    rtol = limits["accumulative_bound"] if accumulative else limits["rtol"]
    atol = limits["accumulative_bound"] if accumulative else limits["small_value_atol"]
    assert standard in (ABSOLUTE, ACCUMULATIVE)
    found: Metrics = {
        "inf_nan_share": _special_share(n, b, with_eps, ~finite, dtype, rtol),
        "rel_err_share": _share((error / with_eps > rtol) & finite & ~small, finite & ~small),
        "abs_err_share": _share((error > atol) & small, small),
    }
    if accumulative:
        found["eb"] = _balance(n, b)
    return found


def _benchmark_columns(
    n: Floats, b: Floats, error: Floats, with_eps: Floats, finite: Floats, small: Floats, limits: Limits
) -> Metrics:
    masked = ~finite | small
    relative = np.where(masked, -1, error / with_eps)
    normal = relative[relative >= 0]
    largest = np.max(relative)
    squares = _mean(np.square(np.where(masked, 0, error)))
    count = np.sum(masked)
    mean = squares * (error.size / (error.size - count + 0.0001) + 0.0001)
    return {
        "small_value_share": _share(small & (error > limits["benchmark_atol"]), small),
        "rmse": float(np.sqrt(mean)),
        "eb": _balance(n, b),
        "max_rel_err": float(largest) if largest >= 0 else 0.0,
        "mean_rel_err": float(_mean(normal)) if normal.size else 0.0,
    }


def _balance(n: Floats, b: Floats) -> float:
    difference = n - b.astype(n.dtype)
    return float(abs(np.sum(difference > 0) - np.sum(difference < 0)) / b.size)


def _special_share(n: Floats, b: Floats, with_eps: Floats, special: Floats, dtype: torch.dtype, rtol: float) -> float:
    same = b.astype(n.dtype)
    low, high = np.finfo(n.dtype).min, np.finfo(n.dtype).max
    if dtype is torch.bfloat16:
        low, high = -_BF16_LARGEST, _BF16_LARGEST
    clipped_bench, clipped = np.clip(same, low, high), np.clip(n, low, high)
    passes = np.abs(clipped - clipped_bench) / with_eps <= rtol
    passes |= np.isnan(n) & np.isnan(clipped_bench)
    return _share(~passes & special, special)


def _ulp_columns(n: Floats, b: Floats, dtype: torch.dtype, limits: Limits) -> Metrics:
    emin, mantissa = _ULP[dtype]
    absolute = np.abs(b)
    exponent = np.maximum(np.where(absolute == 0, 0, np.floor(np.log2(absolute))), emin)
    wide = np.float64 if dtype is torch.float32 else np.float32
    steps = np.abs((n.astype(wide) - b).astype(wide) * np.exp2(-exponent + mantissa).astype(wide))
    return {
        "max_ulp": float(np.max(steps)),
        "mean_ulp": float(_mean(steps)),
        "ulp_share": float(np.sum(steps > limits["ulp_threshold"]) / b.size),
    }


def _mean(values: Floats) -> Any:
    """The mean as NumPy 1.26 (the peer's) rounds it: sums of 8192 elements, added one after the other."""
    flat = values.reshape(-1)
    wide = flat.astype(np.float32) if flat.dtype == np.float16 else flat
    total = wide.dtype.type(0)
    for start in range(0, wide.size, _NUMPY_BUFFER):
        total = total + np.add.reduce(wide[start : start + _NUMPY_BUFFER])
    return flat.dtype.type(total / wide.dtype.type(wide.size))


def _share(part: Floats, whole: Floats) -> float:
    total = int(np.sum(whole))
    return float(np.sum(part) / total) if total else 0.0

"""The six standards: from metrics and limits to pass or error, with what each limit said."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from .metrics import Metrics, number
from .names import ABSOLUTE, ACCUMULATIVE, BENCHMARK, BINARY, THOUSANDTH, ULP
from .profiles import Limits


class Check(NamedTuple):
    """One metric held against its limit; a tuple, for there are several in every output.

    Attributes:
        metric: what was looked at, such as `rmse_ratio`.
        value: what it was.
        limit: the largest value that passes.
        passed: whether it did.
        ratio: value over limit, how far it is from failing; None where the limit is zero or the value no number.
    """

    metric: str
    value: float
    limit: float
    passed: bool
    ratio: float | None


@dataclass(frozen=True)
class Finding:
    """What a standard says."""

    status: str
    checks: tuple[Check, ...]
    message: str

    @property
    def ratio(self) -> float | None:
        """The worst check's ratio; above one fails."""
        known = [check.ratio for check in self.checks if check.ratio is not None]
        return max(known, default=None)


def judge_standard(standard: str, metrics: Metrics, reference: Metrics | None, limits: Limits) -> Finding:
    """Judge one output; `reference` holds the metrics of the reference device against the same bench."""
    return _JUDGES[standard](metrics, reference or {}, limits)


def _at_most(metric: str, value: float, limit: float) -> Check:
    if limit > 0:
        ratio = math.nan if math.isnan(value) else value / limit
    else:
        ratio = 0.0 if value == 0 else math.inf
    return Check(metric, value, limit, value <= limit, ratio)


def _finding(checks: list[Check]) -> Finding:
    failed = [check for check in checks if not check.passed]
    if not failed:
        return Finding("pass", tuple(checks), "")
    said = "; ".join(f"{check.metric} {check.value:.6g} exceeds {check.limit:.6g}" for check in failed)
    return Finding("error", tuple(checks), said)


def _binary(metrics: Metrics, reference: Metrics, limits: Limits) -> Finding:
    return _finding([_at_most("error_rate", number(metrics, "error_rate"), 0.0)])


def _absolute(metrics: Metrics, reference: Metrics, limits: Limits) -> Finding:
    names = ("inf_nan_share", "rel_err_share", "abs_err_share")
    return _finding([_at_most(name, number(metrics, name), 0.0) for name in names])


def _thousandth(metrics: Metrics, reference: Metrics, limits: Limits) -> Finding:
    share, least = number(metrics, "thousandth"), limits["thousandth_share"]
    room = 1 - least
    ratio = (1 - share) / room if room > 0 else (0.0 if share >= 1 else math.inf)
    check = Check("thousandth", share, least, share >= least, ratio)
    said = "" if check.passed else f"thousandth ratio {share:.6g} is below {least:g}"
    return Finding("pass" if check.passed else "error", (check,), said)


def _accumulative(metrics: Metrics, reference: Metrics, limits: Limits) -> Finding:
    names = ("inf_nan_share", "rel_err_share", "abs_err_share")
    checks = [_at_most(name, number(metrics, name), 0.0) for name in names]
    return _finding([*checks, _at_most("eb", number(metrics, "eb"), limits["eb_limit"])])


def _ulp(metrics: Metrics, reference: Metrics, limits: Limits) -> Finding:
    """Any one of its checks is enough."""
    mean, share = number(metrics, "mean_ulp"), number(metrics, "ulp_share")
    ratio, agree = ratio_of(share, _zero_if_absent(reference, "ulp_share"), limits["min_err"])
    _, mean_agrees = ratio_of(mean, _zero_if_absent(reference, "mean_ulp"), limits["min_err"])
    checks = [
        _below("ulp_share", share, limits["ulp_share"]),
        _below("ulp_share_ratio", ratio, limits["ulp_share_ratio"]),
    ]
    if limits["ulp_mean"] > 0:
        checks.insert(0, _below("mean_ulp", mean, limits["ulp_mean"]))
    if agree and mean_agrees and any(check.passed for check in checks):
        best = min((check.ratio for check in checks if check.ratio is not None), default=None)
        return Finding("pass", tuple(_with_ratio(check, best) for check in checks), "")
    said = ", ".join(f"{check.metric} {check.value:.6g} is not below {check.limit:g}" for check in checks)
    return Finding("error", tuple(_with_ratio(check, _least(checks)) for check in checks), said)


def _least(checks: list[Check]) -> float | None:
    known = [check.ratio for check in checks if check.ratio is not None]
    return max(1.0, min(known)) if known else None


def _with_ratio(check: Check, ratio: float | None) -> Check:
    return Check(check.metric, check.value, check.limit, check.passed, ratio)


def _below(metric: str, value: float, limit: float) -> Check:
    ratio = value / limit if limit > 0 and not math.isnan(value) else None
    return Check(metric, value, limit, value < limit, ratio)


_RATIOS = (
    ("small_value_share", "small_value_ratio"),
    ("rmse", "rmse_ratio"),
    ("max_rel_err", "max_rel_ratio"),
    ("mean_rel_err", "mean_rel_ratio"),
)


def _benchmark(metrics: Metrics, reference: Metrics, limits: Limits) -> Finding:
    checks: list[Check] = []
    for metric, name in _RATIOS:
        floor = limits["min_err"]
        if metric == "rmse":
            floor *= float(metrics.get("rmse_scale") or 1.0)
        ratio, agree = ratio_of(number(metrics, metric), _zero_if_absent(reference, metric), floor)
        limit = limits[name]
        if math.isnan(ratio):
            checks.append(Check(name, ratio, limit, agree, None if agree else math.inf))
        else:
            checks.append(_at_most(name, ratio, limit))
    return _finding(checks)


def ratio_of(device: float, reference: float, floor: float) -> tuple[float, bool]:
    """|device| / max(|reference|, floor), and whether their inf and nan agree (their ratio then is nan)."""
    if math.isfinite(device) and math.isfinite(reference):
        return abs(device) / max(abs(reference), floor), True
    if math.isinf(device) or math.isinf(reference):
        return math.nan, device == reference
    return math.nan, math.isnan(device) and math.isnan(reference)


def _zero_if_absent(reference: Metrics, name: str) -> float:
    return number(reference, name) if name in reference else 0.0


_JUDGES: dict[str, Callable[[Metrics, Metrics, Limits], Finding]] = {
    BINARY: _binary,
    ABSOLUTE: _absolute,
    THOUSANDTH: _thousandth,
    ACCUMULATIVE: _accumulative,
    ULP: _ulp,
    BENCHMARK: _benchmark,
}

# The limits that each standard is judged by.
LIMITS_OF: dict[str, tuple[str, ...]] = {
    BINARY: (),
    ABSOLUTE: ("small_value", "small_value_atol", "rtol"),
    ULP: ("ulp_threshold", "ulp_mean", "ulp_share", "ulp_share_ratio", "min_err", "outlier_factor", "outlier_ulp"),
    THOUSANDTH: ("thousandth_share", "outlier_factor", "outlier_ulp"),
    ACCUMULATIVE: ("accumulative_small_value", "accumulative_bound", "eb_limit"),
    BENCHMARK: (
        "small_value",
        "benchmark_atol",
        "min_err",
        "small_value_ratio",
        "rmse_ratio",
        "max_rel_ratio",
        "mean_rel_ratio",
        "outlier_factor",
        "outlier_ulp",
    ),
}

"""One float output: metrics, special values, ladder, standard, outliers, rounding noise."""

from __future__ import annotations

import functools
import math
import zlib
from dataclasses import dataclass, replace
from typing import Any

import torch

from .dtypes import Format
from .ladder import ladder
from .metrics import Metrics, metrics_of
from .names import ABSOLUTE, ACCUMULATIVE, THOUSANDTH, THREE_WAY
from .noise import NOISIER, SINGLE_GOLDEN, TWO_WAY, reference_noise, relieved
from .profiles import Limits
from .result import OutputJudgement, failed, worst_of
from .special import special_fault
from .standards import LIMITS_OF, Check, Finding, judge_standard
from .sweep import sweep
from .totals import Thresholds, Totals

_RELIEVED = (*THREE_WAY, THOUSANDTH)


def judge_float(
    standard: str,
    limits: Limits,
    blank: OutputJudgement,
    form: Format,
    device: torch.Tensor,
    reference: torch.Tensor,
    golden: torch.Tensor | None,
) -> OutputJudgement:
    """Judge one float output; without golden a three-way standard falls back to the reference as its bench."""
    three_way = golden is not None and standard in THREE_WAY
    bench = golden if golden is not None and three_way else reference
    real, real_reference, real_bench = _real(device), _real(reference), _real(bench)
    compared = Comparison(standard, form, device.dtype, limits)
    totals = compared.totals(real, real_bench)
    metrics = {**compared.metrics(totals), "device_special": totals.device_special}
    own: Totals | None = None
    reference_metrics: Metrics | None = None
    if three_way:
        own = compared.totals(real_reference, real_bench, sides=False)
        reference_metrics = compared.metrics(own)
    fault = None
    if totals.device_special or (own is not None and own.device_special) or (own is None and totals.set_aside):
        fault = special_fault(real, real_reference)
    metrics["device_crc32"], metrics["bench_crc32"] = checksum(real), checksum(real_reference)
    measured: dict[str, Any] = {
        "bench_dtype": str(bench.dtype).removeprefix("torch."),
        "metrics": metrics,
        "reference_metrics": reference_metrics,
        "limits": {name: limits.values[name] for name in LIMITS_OF[standard]},
    }
    if fault is not None:
        worst = {
            "index": _unravel(fault.place, real.shape),
            "device": fault.device,
            "reference": fault.reference,
        }
        return replace(failed(blank, str(fault)), worst=worst, **measured)
    if totals.size == 0:
        agree: dict[str, Any] = dict.fromkeys(("verdict", "status", "standard_status"), "pass")
        return replace(blank, message="special values agree", **agree, **measured)
    verdict = compared.verdict(metrics, reference_metrics, totals, own)
    noted = ""
    if verdict.failed and standard in _RELIEVED:
        clean, count = compared.without_noise(real, real_reference, real_bench, totals, own)
        if count:
            again = compared.totals(clean, real_bench)
            second = compared.verdict(compared.metrics(again), reference_metrics, again, own)
            if second.severity < verdict.severity:
                verdict = second
                noted = f"{count} elements within rounding noise were left out"
    return replace(blank, **measured, **compared.words(verdict, totals, real, real_bench, noted))


def _as_noisy(totals: Totals, own: Totals) -> bool:
    """Whether the device's errors are, as a whole, of the reference's size: only then can noise explain single ones."""
    ours = totals.squares_normal + totals.squares_small
    return ours <= NOISIER**2 * (own.squares_normal + own.squares_small)


@dataclass(frozen=True)
class _Verdict:
    status: str
    reason: str
    looked: tuple[str, ...]
    finding: Finding
    outlier: Check

    @property
    def failed(self) -> list[str]:
        """What did not pass."""
        words = [] if self.status == "pass" else ["ladder"]
        words += [] if self.finding.status == "pass" else ["standard"]
        return words + ([] if self.outlier.passed else ["outlier"])

    @property
    def severity(self) -> tuple[int, int]:
        """Errors, then warnings."""
        errors = (self.status == "error") + (self.finding.status == "error") + (not self.outlier.passed)
        return errors, int(self.status == "warning")


@dataclass(frozen=True)
class Comparison:
    """How one output is compared: its standard, number format and limits."""

    standard: str
    form: Format
    dtype: torch.dtype
    limits: Limits

    def totals(self, device: torch.Tensor, bench: torch.Tensor, *, sides: bool = True) -> Totals:
        eps = self.form.eps
        if self.form.row == "float16" or self.form.row == "float32":
            eps = torch.finfo(bench.dtype).eps
        thresholds = _thresholds(self.limits, self.standard == ACCUMULATIVE)
        return sweep(device, bench, self.form, eps, thresholds, sides=sides)

    def metrics(self, totals: Totals) -> Metrics:
        return {**metrics_of(totals), "rmse_scale": max(1.0, totals.bench_largest)}

    def verdict(self, metrics: Metrics, reference: Metrics | None, totals: Totals, own: Totals | None) -> _Verdict:
        status, reason, looked = ladder(metrics, self.dtype, self.limits)
        if status == "warning" and own is not None and totals.beyond_rounding < 1e-3 * totals.size:
            # A golden value rounded to half precision is up to 2^-9 off; that is the dtype, not the device.
            status, reason = "pass", ""
        finding = judge_standard(self.standard, metrics, reference, self.limits)
        yardstick = self.limits["outlier_ulp"] * self._ulp_at(totals.bench_largest)
        allowed = self.limits["outlier_factor"] * max(own.max_abs if own is not None else 0.0, yardstick)
        outlier = Check("max_abs_err", totals.max_abs, allowed, totals.max_abs <= allowed, totals.max_abs / allowed)
        return _Verdict(status, reason, looked, finding, outlier)

    def _ulp_at(self, magnitude: float) -> float:
        exponent = math.frexp(magnitude)[1] - 1 if magnitude > 0 else self.form.emin
        return 2.0 ** (max(exponent, self.form.emin) - self.form.mantissa)

    def without_noise(
        self,
        device: torch.Tensor,
        reference: torch.Tensor,
        bench: torch.Tensor,
        totals: Totals,
        own: Totals | None,
    ) -> tuple[torch.Tensor, int]:
        """The device's output without errors that rounding noise explains, and how many those are."""
        inside = self.limits["internal_ulp"] * self._ulp_at(totals.bench_largest)
        if own is None:
            # Two-way: both sides are rounded, and without golden nothing tells the noise of the reference.
            noise = TWO_WAY * totals.bench_largest if self.standard == THOUSANDTH else 0.0
            return relieved(device, bench, self.form, max(noise, inside), 1.0)
        if bench.dtype is torch.float32:
            inside = max(inside, SINGLE_GOLDEN * totals.bench_largest)
        if _as_noisy(totals, own):
            by_size = reference_noise(reference, bench, self.form).clamp_min(inside)
            return relieved(device, bench, self.form, by_size, 0.5)
        return relieved(device, bench, self.form, inside, 0.5) if inside else (device, 0)

    def words(
        self,
        verdict: _Verdict,
        totals: Totals,
        device: torch.Tensor,
        bench: torch.Tensor,
        noted: str,
    ) -> dict[str, Any]:
        """The judgement's own fields: statuses, checks, worst element, what would have passed, message."""
        standard_status = "error" if not verdict.outlier.passed else verdict.finding.status
        reasons = [verdict.finding.message] if verdict.finding.message else []
        if verdict.status != "pass":
            reasons.insert(0, f"ladder: {verdict.reason}")
        if not verdict.outlier.passed:
            reasons.append(
                f"outlier: max abs error {totals.max_abs:.6g} exceeds {verdict.outlier.limit:.6g}, "
                f"{self.limits['outlier_factor']:g} times what rounding explains"
            )
        if noted:
            reasons.append(noted)
        checks = (*verdict.finding.checks, verdict.outlier)
        ratios = [check.ratio for check in checks if check.ratio is not None]
        overall = worst_of([verdict.status, standard_status])
        place = totals.max_rel_at if self.standard == ABSOLUTE else totals.max_abs_at
        would = None
        if overall != "pass":
            would = {check.metric: check.value for check in checks if not check.passed}
            would |= {"atol": totals.max_abs, "rtol": totals.max_rel}
        return {
            "verdict": overall,
            "status": verdict.status,
            "standard_status": standard_status,
            "checks": checks,
            "ratio": max(ratios, default=None),
            "worst": worst_element(device, bench, place),
            "would_pass": would,
            "looked": verdict.looked,
            "message": "; ".join(reasons),
        }


@functools.lru_cache(maxsize=1024)
def _thresholds(limits: Limits, accumulative: bool) -> Thresholds:
    if accumulative:
        bound = limits["accumulative_bound"]
        return Thresholds(limits["accumulative_small_value"], bound, bound, bound, limits["ulp_threshold"])
    names = ("small_value", "small_value_atol", "benchmark_atol", "rtol", "ulp_threshold")
    return Thresholds(*(limits[name] for name in names))


def checksum(tensor: torch.Tensor) -> str:
    """CRC-32 of a tensor's elements in memory order, as eight hex digits."""
    # A dimension of one element may have any step, and such a tensor counts as contiguous.
    values = tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)
    return f"{zlib.crc32((values if values.device.type == 'cpu' else values.cpu()).numpy().data):08x}"


def worst_element(device: torch.Tensor, bench: torch.Tensor, place: int) -> dict[str, Any]:
    """Index of an element by its place in the flattened output, and both values there."""
    return {
        "index": _unravel(place, device.shape),
        "device": float(device.reshape(-1)[place]),
        "reference": float(bench.reshape(-1)[place]),
    }


def _unravel(place: int, shape: torch.Size) -> list[int]:
    found: list[int] = []
    for size in reversed(shape):
        found.append(place % size)
        place //= size
    return found[::-1]


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor

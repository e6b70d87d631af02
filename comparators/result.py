"""What a judgement is: a value with `bool()`, readable as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .metrics import Metrics
from .standards import Check

SEVERITY: Mapping[str, int] = {"skip": 0, "pass": 1, "warning": 2, "error": 3}


def worst_of(statuses: list[str]) -> str:
    """The worst status; nothing compared is a skip, never a pass."""
    return max(statuses, key=SEVERITY.__getitem__, default="skip")


@dataclass(frozen=True)
class OutputJudgement:
    """The judgement of one output; the names are the keys of its JSON.

    Attributes:
        index, path: where the output stands in the call's result.
        status: the ladder's word; `standard_status`: the standard's; `verdict`: the worse of both, or of the rule that
            decided before them.
        metrics: of the device against the bench (golden in three-way mode, reference in two-way).
        reference_metrics: of the reference device against golden.
        limits: the limits that were applied, and `checks` what each said.
        ratio: the worst metric over its limit; above one fails.
        worst: index and both values of the element that is furthest off.
        would_pass: for a failing output, the limits that would have passed it.
        looked: the ladder's metrics in the order of looking; later ones stay blank in the CSV files.
        spread: of an output that fails, how its errors are spread, for pictures; absent from the JSON of others.
    """

    index: int
    path: str
    verdict: str
    standard: str
    status: str = "skip"
    standard_status: str = "skip"
    dtype: str = ""
    bench_dtype: str = ""
    shape: tuple[int, ...] = ()
    metrics: Metrics = field(default_factory=dict)
    reference_metrics: Metrics | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    ratio: float | None = None
    worst: Mapping[str, Any] | None = None
    would_pass: Mapping[str, float] | None = None
    looked: tuple[str, ...] = ()
    message: str = ""
    spread: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """A strict JSON object: nan and inf are strings."""
        found = {
            "index": self.index,
            "path": self.path,
            "verdict": self.verdict,
            "status": self.status,
            "standard": self.standard,
            "standard_status": self.standard_status,
            "dtype": self.dtype,
            "bench_dtype": self.bench_dtype,
            "shape": list(self.shape),
            "metrics": _strict(self.metrics),
            "reference_metrics": _strict(self.reference_metrics),
            "limits": _strict(self.limits),
            "checks": [[c.metric, _strict(c.value), c.limit, c.passed] for c in self.checks],
            "ratio": _strict(self.ratio),
            "worst": _strict(self.worst),
            "would_pass": _strict(self.would_pass),
            "looked": list(self.looked),
            "message": self.message,
        }
        if self.spread is not None:
            found["spread"] = _strict(self.spread)
        return found

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        words = [f"output {self.path}: {self.verdict}"]
        if self.dtype:
            words.append(f"{self.dtype} {shape} against {self.bench_dtype}")
        words.append(f"ladder {self.status}, {self.standard} {self.standard_status}")
        lines = [", ".join(words)]
        if self.message:
            lines.append(f"  {self.message}")
        for check in self.checks:
            sign = "ok" if check.passed else "FAILS" if self.standard_status == "error" else "not met, another is"
            lines.append(f"  {check.metric} = {check.value:.6g} (limit {check.limit:.6g}) {sign}")
        if self.worst is not None and self.verdict != "pass":
            device, bench = self.worst["device"], self.worst["reference"]
            lines.append(f"  worst element {self.worst['index']}: device {device}, bench {bench}")
        if self.would_pass:
            allowed = ", ".join(f"{name} {value:.6g}" for name, value in self.would_pass.items())
            lines.append(f"  would have passed with: {allowed}")
        return "\n".join(lines)


def failed(judged: OutputJudgement, message: str) -> OutputJudgement:
    """The judgement as an error that no metric decided."""
    return replace(judged, verdict="error", status="error", standard_status="error", message=message, ratio=math.inf)


@dataclass(frozen=True)
class Judgement:
    """The judgement of one call; true unless something is an error."""

    api: str
    verdict: str
    standard: str
    mode: str
    status: str
    standard_status: str
    message: str
    outputs: tuple[OutputJudgement, ...]

    def __bool__(self) -> bool:
        return self.verdict != "error"

    def to_json(self) -> dict[str, Any]:
        """The verdict's part of a result row, as strict JSON."""
        return {
            "verdict": self.verdict,
            "standard": self.standard,
            "mode": self.mode,
            "status": self.status,
            "standard_status": self.standard_status,
            "message": self.message,
            "outputs": [output.to_json() for output in self.outputs],
        }

    def __str__(self) -> str:
        head = f"{self.api}: {self.verdict} ({self.standard} standard, {self.mode})"
        return "\n".join([head if not self.message else f"{head}: {self.message}", *map(str, self.outputs)])


def _strict(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return value

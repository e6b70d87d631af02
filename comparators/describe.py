"""Which standard and which limits judge an API, and which line says so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .limits import DTYPE_ROWS, MEANING
from .names import ABSOLUTE, ACCUMULATIVE, BENCHMARK, BINARY, STANDARDS, THOUSANDTH, THREE_WAY, ULP
from .profiles import Profile, load_profile
from .standards import LIMITS_OF

PASSES_IFF = {
    BINARY: "no element differs",
    ABSOLUTE: "no element's inf/nan, relative or (small values) absolute error is above its limit",
    ULP: "the mean ULP error, the share above the threshold, or that share's ratio to the reference's is below its limit",
    THOUSANDTH: "at least this share of the elements is within 0.001 of the reference",
    ACCUMULATIVE: "as the absolute standard with the accumulative bound, and the errors balance",
    BENCHMARK: "the device's errors against golden, over the reference device's, stay within the ratios",
}
_LADDER = ("cosine", "max_abs_err")


@dataclass(frozen=True)
class LimitLine:
    """One limit for one dtype: its value, what it means, and the line that decided."""

    dtype: str
    name: str
    value: float
    meaning: str
    decided_by: str


@dataclass(frozen=True)
class StandardDescription:
    """How an API is judged; with `api` None, what a standard is in general."""

    api: str | None
    standard: str
    mode: str
    passes_iff: str
    decided_by: str
    limits: tuple[LimitLine, ...]

    def __str__(self) -> str:
        head = f"{self.api}: " if self.api else ""
        lines = [f"{head}{self.standard} ({self.mode}); {self.decided_by}", f"  passes iff {self.passes_iff}"]
        lines += [f"  {line.dtype:12} {line.name:24} {line.value:<12.6g} {line.decided_by}" for line in self.limits]
        return "\n".join(lines)


def describe_standard(
    api: str | None = None, profile: str | Path | Profile = "default"
) -> tuple[StandardDescription, ...]:
    """How one API is judged, or, without one, every standard."""
    loaded = load_profile(profile)
    if api is not None:
        standard, line = loaded.standard(api)
        return (_describe(api, standard, line, loaded),)
    return tuple(_describe(None, standard, f"profile {loaded.name}", loaded) for standard in STANDARDS)


def _describe(api: str | None, standard: str, line: str, profile: Profile) -> StandardDescription:
    found: list[LimitLine] = []
    for dtype in DTYPE_ROWS:
        limits = profile.limits(api or "", dtype)
        for name in (*LIMITS_OF[standard], *_LADDER):
            found.append(LimitLine(dtype, name, limits[name], MEANING[name], limits.lines[name]))
    mode = (
        "three-way: device and reference against golden" if standard in THREE_WAY else "two-way: against the reference"
    )
    return StandardDescription(api, standard, mode, PASSES_IFF[standard], line, tuple(found))

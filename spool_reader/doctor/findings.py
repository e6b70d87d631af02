"""What a check found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..terminal import sanitised

STATES = ("ok", "warn", "fail")


@dataclass(frozen=True)
class Finding:
    """One check: `state` is ok, warn or fail; `remedy` says what to do about the latter two."""

    check: str
    state: str
    detail: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        """As a JSON line."""
        return asdict(self)


def ok(check: str, detail: str) -> Finding:
    """Nothing to do."""
    return Finding(check, "ok", detail)


def warn(check: str, detail: str, remedy: str) -> Finding:
    """It works, and something may go wrong or slowly."""
    return Finding(check, "warn", detail, remedy)


def fail(check: str, detail: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(check, "fail", detail, remedy)


def finding_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """A line for each check, with its remedy under it, and how many there are of each state."""
    counts = dict.fromkeys(STATES, 0)
    for finding in findings:
        counts[finding.state] += 1
        yield f"{finding.state:4}  {finding.check:14} {sanitised(finding.detail, 300)}"
        if finding.remedy:
            yield f"{'':20} → {sanitised(finding.remedy, 300)}"
    yield ", ".join(f"{count} {state}" for state, count in counts.items())

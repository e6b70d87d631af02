"""The top of the report: how it ended, where it first went wrong, and per operator: since when, and on which ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..accounts import account_lines
from ..rows import SEVERITY, Finding
from ..summary import Summary
from ..terminal import sanitised

_SHOWN = 50
_RANGES = 6
_RESULT = {0: "pass", 1: "fail", 5: "nothing"}


@dataclass
class _Operator:
    """What the report says of one failing operator."""

    name: str
    calls: int = 0
    failed: int = 0
    warned: int = 0
    first: Finding | None = None
    worst: float = 0.0
    ranks: set[int] = field(default_factory=set)
    steps: set[int] = field(default_factory=set)

    def add(self, finding: Finding) -> None:
        self.calls += 1
        if SEVERITY[finding.verdict] < SEVERITY["warning"]:
            return
        self.failed += finding.verdict == "error"
        self.warned += finding.verdict == "warning"
        self.ranks.add(finding.rank)
        self.steps.add(finding.step)
        self.worst = max(self.worst, math.inf if finding.ratio is None else finding.ratio)
        if self.first is None or _order(finding) < _order(self.first):
            self.first = finding


class Operators:
    """The operators of a report, by name."""

    def __init__(self) -> None:
        self._known: dict[str, _Operator] = {}

    def add(self, finding: Finding) -> None:
        """Count one call."""
        name = finding.operator
        if name not in self._known:
            self._known[name] = _Operator(name)
        self._known[name].add(finding)

    def failing(self) -> list[dict[str, Any]]:
        """Those with an error or a warning: errors first, then in the order of their first failing call."""
        found = [operator for operator in self._known.values() if operator.first is not None]
        found.sort(key=lambda operator: (operator.failed == 0, *_order(operator.first)))
        return [_shown(operator) for operator in found]


def _order(finding: Finding | None) -> tuple[int, int, int]:
    assert finding is not None
    return finding.step, finding.seq, finding.rank


def _shown(operator: _Operator) -> dict[str, Any]:
    assert operator.first is not None
    return {
        "name": sanitised(operator.name, 150),
        "calls": operator.calls,
        "failed": operator.failed,
        "warned": operator.warned,
        "worst": _ratio(operator.worst),
        "step": operator.first.step,
        "seq": operator.first.seq,
        "rank": operator.first.rank,
        "ranks": ranges(operator.ranks),
        "steps": ranges(operator.steps),
    }


def _ratio(ratio: float) -> str:
    if math.isinf(ratio):
        return "no ratio"
    return f"{float(f'{ratio:.3g}'):.0f}×" if 1000 <= ratio < 1e6 else f"{ratio:.3g}×"


def overview(summary: Summary, operators: Operators, problems: Iterable[str], notes: Iterable[str]) -> dict[str, Any]:
    """What the page's template shows, all of it harmless text."""
    firsts = sorted(summary.first_divergence.values(), key=_order)
    failing = operators.failing()
    order = sorted(SEVERITY, key=lambda verdict: -SEVERITY[verdict])
    return {
        "result": _RESULT[summary.exit_code],
        "line": summary.result_line().removeprefix("RESULT "),
        "counts": [(verdict, summary.verdicts[verdict]) for verdict in order if summary.verdicts[verdict]],
        "first": _first(firsts[0]) if firsts else None,
        "firsts": [_first(finding) for finding in firsts[:_SHOWN]],
        "more_firsts": max(0, len(firsts) - _SHOWN),
        "operators": failing[:_SHOWN],
        "more_operators": max(0, len(failing) - _SHOWN),
        "problems": [sanitised(problem, 600) for problem in problems],
        "remarks": [sanitised(text, 400) for text in (*_remarks(summary), *notes)],
    }


def _first(finding: Finding) -> dict[str, Any]:
    return {
        "session": sanitised(finding.session, 80),
        "api": sanitised(finding.api, 160),
        "rank": finding.rank,
        "step": finding.step,
        "seq": finding.seq,
        "phase": sanitised(finding.phase, 20),
        "message": sanitised(finding.message, 300),
    }


def _remarks(summary: Summary) -> Iterable[str]:
    yield from account_lines(summary)
    yield from (f"known: {count} calls, {label}" for label, count in summary.known.most_common())
    yield from (
        f"known difference past its version, which {count} calls still show: {label}"
        for label, count in summary.expired.most_common()
    )
    yield from (f"known difference that no call showed: {label}" for label in summary.unused)
    yield from (f"skipped: {count} calls: {why}" for why, count in summary.skips.most_common(_SHOWN))
    for entry in summary.quarantined[:_SHOWN]:
        place = f"rank {entry['rank']} step {entry['step']} seq {entry['seq']} {entry['api']}"
        yield f"in quarantine: {place}: {entry['reason']}"
    for session in summary.incomplete[:_SHOWN]:
        yield f"incomplete: session {session.session} of rank {session.rank} is {session.state}"


def ranges(numbers: Iterable[int]) -> str:
    """`0-3, 7`: numbers as people write them; only the ends and the count where that would be long."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    if len(found) > _RANGES:
        return f"{found[0][0]} … {found[-1][1]} ({sum(last - first + 1 for first, last in found)} in all)"
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)

"""The calls of a report as columns, so that a browser reads a hundred thousand at once; every name stands once."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any

from ..rows import Finding, number
from ..terminal import sanitised

# Worst first: what a browser gets is the place in this list.
VERDICTS = ("error", "warning", "known", "pass", "skip")
_PASS = VERDICTS.index("pass")
# A browser's integers end here.
_LARGEST = 2**53
_INFINITE, _NONE = -1.0, -2.0


class Names:
    """Texts by number, each once, and harmless to show."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._numbers: dict[str, int] = {}
        self.shown: list[str] = []

    def number(self, text: str) -> int:
        """The number of a text, a new one for a new text."""
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.shown)
            self.shown.append(sanitised(text, self._width))
        return found


class Calls:
    """Columns of calls, in the order of adding."""

    def __init__(self) -> None:
        self._whole = {name: array("q") for name in ("rank", "step", "seq")}
        self._names = {
            "session": Names(80),
            "api": Names(160),
            "phase": Names(20),
            "standard": Names(60),
            "dtype": Names(20),
            "message": Names(300),
        }
        self._coded = {name: array("l") for name in self._names}
        self._operators = Names(150)
        self._operator_of_api: list[int] = []
        self._verdict = array("b")
        self._ratio = array("d")

    def __len__(self) -> int:
        return len(self._verdict)

    def add(self, finding: Finding, row: Mapping[str, Any]) -> None:
        """Add one call."""
        for name, column in self._whole.items():
            column.append(max(-_LARGEST, min(_LARGEST, getattr(finding, name))))
        texts = (finding.session, finding.api, finding.phase, finding.standard, dtype_of(row), finding.message)
        for (name, column), text in zip(self._coded.items(), texts, strict=True):
            column.append(self._names[name].number(text))
        if len(self._operator_of_api) < len(self._names["api"].shown):
            self._operator_of_api.append(self._operators.number(finding.operator))
        self._verdict.append(VERDICTS.index(finding.verdict))
        ratio = finding.ratio
        self._ratio.append(_NONE if ratio is None else _INFINITE if math.isinf(ratio) else float(f"{ratio:.4g}"))

    def kept(self, limit: int) -> list[int]:
        """The calls that a report of at most about `limit` calls shows.

        Passing calls go first, but the worst of each API, rank and step stays: the worst ratios remain those of all calls.
        """
        if len(self) <= limit:
            return list(range(len(self)))
        worst: dict[tuple[int, int, int], int] = {}
        kept: list[int] = []
        for call, verdict in enumerate(self._verdict):
            if verdict != _PASS:
                kept.append(call)
                continue
            operator = self._operator_of_api[self._coded["api"][call]]
            place = operator, self._whole["rank"][call], self._whole["step"][call]
            other = worst.setdefault(place, call)
            if self._weight(call) > self._weight(other):
                worst[place] = call
        kept += worst.values()
        if len(kept) > limit:
            kept.sort(key=lambda call: (self._verdict[call], -self._weight(call), call))
            del kept[limit:]
        return sorted(kept)

    def _weight(self, call: int) -> float:
        ratio = self._ratio[call]
        return math.inf if ratio == _INFINITE else ratio

    def to_json(self, kept: list[int]) -> dict[str, Any]:
        """The kept calls: columns of numbers, and the names that they stand for. A ratio of -1 is infinite, -2 is none."""
        columns: dict[str, array[int] | array[float]] = {
            **self._whole,
            **self._coded,
            "verdict": self._verdict,
            "ratio": self._ratio,
        }
        return {
            "columns": {name: [column[call] for call in kept] for name, column in columns.items()},
            "names": {name: names.shown for name, names in self._names.items()},
            "operators": self._operators.shown,
            "operator_of_api": self._operator_of_api,
            "verdicts": VERDICTS,
        }


def dtype_of(row: Mapping[str, Any]) -> str:
    """The type of the output that is furthest off, else of the first; empty where there is none."""
    found, worst = "", -math.inf
    for output in row.get("outputs") or ():
        ratio = number(output.get("ratio"))
        weight = -1.0 if ratio is None else math.inf if math.isnan(ratio) else ratio
        if output.get("dtype") and weight > worst:
            found, worst = str(output["dtype"]), weight
    return found

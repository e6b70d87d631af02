"""Where the time of judging went, from the timings of rows: by part, and the operators that took most."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from .terminal import sanitised

_MOST = 10


def time_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The seconds of all rows together, by part and by operator."""
    parts: defaultdict[str, float] = defaultdict(float)
    operators: defaultdict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    for row in rows:
        operator = str(row["api"]).rpartition(".")[0]
        calls[operator] += 1
        timings = {str(part): float(seconds) for part, seconds in row.get("timings", {}).items()}
        inside = sum(seconds for part, seconds in timings.items() if part != "total")
        whole = timings.pop("total", inside)
        for part, seconds in (*timings.items(), ("all else", max(0.0, whole - inside))):
            parts[part] += seconds
        operators[operator] += whole
    total = sum(parts.values())
    lines = [
        f"time: {total:.3f} s in {calls.total()} calls: " + ", ".join(f"{p} {s:.3f} s" for p, s in _largest(parts))
    ]
    for operator, seconds in _largest(operators)[:_MOST]:
        share = 100 * seconds / total if total else 0.0
        lines.append(f"  {seconds:9.3f} s {share:5.1f} %  {calls[operator]:7} calls  {sanitised(operator, 60)}")
    return lines


def _largest(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda item: -item[1])

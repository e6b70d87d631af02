"""What a batch run would judge, counted without taking anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .places import open_place
from .selection import Selection
from .terminal import sanitised


@dataclass
class Plan:
    """Counts of the bundles that are selected, and how much else is there."""

    spool: str
    selected: int = 0
    ready: int = 0
    quarantined: int = 0
    ranks: Counter[int] = field(default_factory=Counter)
    steps: Counter[int] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """The fields, with plain dictionaries."""
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}


def plan(spool: str | Path, selection: Selection) -> Plan:
    """Look through a spool, or a folder of saved failures."""
    with open_place(spool) as opened:
        found = Plan(opened.url, quarantined=opened.stats().quarantined)
        for waiting in opened.waiting():
            found.ready += 1
            if selection.wants(waiting):
                found.selected += 1
                found.ranks[waiting.rank] += 1
                found.steps[waiting.step] += 1
                found.operators[waiting.api.rpartition(".")[0]] += 1
    return found


def _span(numbers: Collection[int]) -> str:
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"


def plan_lines(found: Plan) -> Iterator[str]:
    """The same for people."""
    yield f"{found.spool}"
    yield f"  would judge {found.selected} of {found.ready} bundles; in quarantine {found.quarantined}"
    for name, counts in (("rank", found.ranks), ("step", found.steps)):
        if counts:
            yield f"  {name}s: {_span(counts)} ({len(counts)}), {_span(counts.values())} bundles each"
    for operator, count in found.operators.most_common(20):
        yield f"  {count:>9} {sanitised(operator, 100)}"
    rest = sum(count for _, count in found.operators.most_common()[20:])
    if rest:
        yield f"  {rest:>9} of {len(found.operators) - 20} other operators"

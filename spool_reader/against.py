"""Two runs side by side: which calls got worse, better, are new or gone.

A call of one run is the call of the other with the same rank, step, phase and API name; sessions have names of their own in
each run. A call that was not judged counts as not there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from spool import ConfigError

from .merging import Merged
from .rows import ROW_VERSION, SEVERITY, Finding, encode_row, finding_of
from .terminal import sanitised

KINDS = ("worse", "better", "new", "gone")
# With the same verdict, a call is worse when its worst metric has grown to this multiple.
GROWTH = 2.0
_EXAMPLES = 20
Place = tuple[int, str, str]


@dataclass(frozen=True)
class Change:
    """One call that is not as it was; a side that is None did not judge it."""

    rank: int
    step: int
    api: str
    phase: str
    before: str | None
    after: str | None
    ratio_before: float | None
    ratio_after: float | None
    message: str

    @property
    def severity(self) -> int:
        """Of its verdict now, or before it was gone."""
        return SEVERITY[self.after or self.before or "skip"]


@dataclass
class Against:
    """The comparison; the worst and first changes of each kind are kept, the rest is counted."""

    same: int = 0
    failing_new: int = 0
    repeated: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    operators: dict[str, Counter[str]] = field(default_factory=dict)
    examples: dict[str, list[Change]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    @property
    def exit_code(self) -> int:
        """1 when something is worse or fails anew, 5 when no call was judged in both runs, else 0."""
        if self.counts["worse"] or self.failing_new:
            return 1
        return 0 if self.same or self.counts["better"] else 5

    def note(self, kind: str, change: Change) -> None:
        """Count a change, and keep it if it is among the first of the worst."""
        self.counts[kind] += 1
        self.operators.setdefault(change.api.rpartition(".")[0], Counter())[kind] += 1
        self.failing_new += kind == "new" and change.after == "error"
        kept = self.examples[kind]
        kept.append(change)
        if len(kept) >= 2 * _EXAMPLES:
            self.examples[kind] = _worst(kept)

    def to_json(self) -> dict[str, Any]:
        """The object that `--format json` prints."""
        return {
            "v": ROW_VERSION,
            "against": {
                "same": self.same,
                **{kind: self.counts[kind] for kind in KINDS},
                "failing_new": self.failing_new,
                "operators": {name: dict(counts) for name, counts in sorted(self.operators.items())},
                "changes": {kind: [asdict(change) for change in _worst(self.examples[kind])] for kind in KINDS},
                "exit_code": self.exit_code,
            },
        }

    def to_line(self) -> str:
        """The same as one line of strict JSON."""
        return encode_row(self.to_json()).decode().rstrip("\n")

    def lines(self) -> Iterator[str]:
        """The same for people; the last line says how it ended."""
        for kind in KINDS:
            changes = _worst(self.examples[kind])
            if changes:
                yield f"{kind}: {self.counts[kind]} calls"
                yield from (f"  {_line(change)}" for change in changes)
            if self.counts[kind] > len(changes):
                yield f"  and {self.counts[kind] - len(changes)} more"
        for name, counts in sorted(self.operators.items(), key=lambda item: -item[1]["worse"])[:_EXAMPLES]:
            said = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])
            yield f"{sanitised(name, 80)}: {said}"
        if self.repeated:
            yield f"{self.repeated} calls stand more than once in one run (a training that was started again); the last counts"
        word = {0: "NOT WORSE", 1: "WORSE", 5: "NOTHING IN COMMON"}[self.exit_code]
        counted = ", ".join(f"{self.counts[kind]} {kind}" for kind in KINDS)
        yield f"RESULT {word}: {counted}, {self.same} as before"


def compare_runs(now: Merged, before: Merged) -> Against:
    """Compare the results of one run with those of an earlier one, rank by rank."""
    for folder in now.folders:
        if any(folder.samefile(other) for other in before.folders):
            raise ConfigError(f"{folder}: stands on both sides; give another results folder to --against")
    found = Against()
    for rank in sorted({*now.ranks, *before.ranks}):
        old = _judged(before, rank, found)
        for place, new in _judged(now, rank, found).items():
            _compare(found, new, old.pop(place, None))
        for gone in old.values():
            found.note("gone", _change(None, gone))
    return found


def _judged(run: Merged, rank: int, found: Against) -> dict[Place, Finding]:
    calls: dict[Place, Finding] = {}
    for row in run.rows_of(rank):
        finding = finding_of(row)
        if finding.verdict != "skip":
            place = finding.step, finding.phase, finding.api
            found.repeated += place in calls
            calls[place] = finding
    return calls


def _compare(found: Against, new: Finding, old: Finding | None) -> None:
    if old is None:
        found.note("new", _change(new, None))
        return
    up = SEVERITY[new.verdict] - SEVERITY[old.verdict]
    if up == 0 and new.verdict != "pass" and new.ratio is not None and old.ratio is not None:
        up = (new.ratio >= GROWTH * old.ratio and new.ratio > old.ratio) - (
            old.ratio >= GROWTH * new.ratio and old.ratio > new.ratio
        )
    if up == 0:
        found.same += 1
    else:
        found.note("worse" if up > 0 else "better", _change(new, old))


def _change(new: Finding | None, old: Finding | None) -> Change:
    shown = new or old
    assert shown is not None
    return Change(
        shown.rank,
        shown.step,
        shown.api,
        shown.phase,
        None if old is None else old.verdict,
        None if new is None else new.verdict,
        None if old is None else old.ratio,
        None if new is None else new.ratio,
        shown.message,
    )


def _worst(changes: list[Change]) -> list[Change]:
    """The first of the worst; sorting is stable, so execution order is kept among equals."""
    return sorted(changes, key=lambda change: -change.severity)[:_EXAMPLES]


def _line(change: Change) -> str:
    sides = f"{change.before or 'not judged'} -> {change.after or 'not judged'}"
    ratios = [change.ratio_before, change.ratio_after]
    over = f" ({ratios[0]:.3g}x -> {ratios[1]:.3g}x its limit)" if None not in ratios else ""
    place = f"rank {change.rank} step {change.step}"
    return (
        f"{sides}{over}  {place}  {sanitised(change.api, 60)} {change.phase}  {sanitised(change.message, 100)}".rstrip()
    )

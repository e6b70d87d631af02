"""The state of a judging in numbers: verdicts, operators, the worst calls, the first divergence, sessions."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spool import SessionRecord

from .rows import INTERNAL, ROW_VERSION, SEVERITY, Finding, finding_of

WORST = 10
# Where in a call the reason was found: the same reason at another place is no other reason.
_PLACE = re.compile(r"^output \S+: | at (?:args|kwargs|result|mutated)[\w.\[\]]*")


@dataclass(frozen=True)
class SessionState:
    """One writer process: what it says of itself and whether it has come to an end."""

    session: str
    rank: int
    state: str
    counts: dict[str, int]

    @property
    def complete(self) -> bool:
        """Whether the writer closed its session itself, without an exception."""
        return self.state == "closed"

    @staticmethod
    def of(record: SessionRecord, *, dead: bool = False) -> SessionState:
        """A session as its file tells it; `dead` when it says open and nothing has moved for too long."""
        state = "dead" if dead else str(record.state)
        return SessionState(record.session, record.rank, state, dict(record.counts))


@dataclass
class Summary:
    """Counts over rows; `checked` and `quarantined` are of this run, all else of the whole results folder.

    `quarantine_growth` is by how many bundles the spool's quarantine grew meanwhile, whoever put them there;
    `known` counts calls by the known difference that covers them, `expired` those that one would cover, had its version
    not come; `listed` are all entries of the list in use; `skips` counts skip rows by reason; `internal` counts those of
    calls on which this tool itself failed, `repeated` bundles whose call had its row already, such as after a crash between
    row and deletion.
    """

    verdicts: Counter[str] = field(default_factory=Counter)
    operators: dict[str, Counter[str]] = field(default_factory=dict)
    first_divergence: dict[tuple[str, int], Finding] = field(default_factory=dict)
    sessions: list[SessionState] = field(default_factory=list)
    quarantined: list[dict[str, Any]] = field(default_factory=list)
    quarantine_growth: int = 0
    internal: int = 0
    known: Counter[str] = field(default_factory=Counter)
    expired: Counter[str] = field(default_factory=Counter)
    skips: Counter[str] = field(default_factory=Counter)
    session_rows: Counter[tuple[str, int]] = field(default_factory=Counter)
    listed: tuple[str, ...] = ()
    checked: int = 0
    fenced: int = 0
    repeated: int = 0
    seconds: float = 0.0
    stopped: bool = False
    results: str = ""
    reports: list[str] = field(default_factory=list)
    _worst: list[tuple[float, float, int, Finding]] = field(default_factory=list)
    _entered: int = 0

    def add(self, finding: Finding) -> None:
        """Count one row."""
        self.verdicts[finding.verdict] += 1
        self.operators.setdefault(finding.operator, Counter())[finding.verdict] += 1
        self.session_rows[finding.session, finding.rank] += 1
        if finding.verdict == "skip":
            self.skips[_PLACE.sub("", finding.message)[:120]] += 1
        severity = SEVERITY[finding.verdict]
        self.internal += severity == 0 and finding.message.startswith(INTERNAL)
        self.known.update(finding.known)
        self.expired.update(finding.expired)
        if severity >= SEVERITY["error"]:
            self._note_divergence(finding)
        if severity > 0:
            self._entered += 1
            ratio = finding.ratio if finding.ratio is not None else math.inf if severity > 2 else 0.0
            entry = (float(severity), ratio, -self._entered, finding)
            if len(self._worst) < WORST:
                heapq.heappush(self._worst, entry)
            elif entry > self._worst[0]:
                heapq.heapreplace(self._worst, entry)

    def _note_divergence(self, finding: Finding) -> None:
        place = (finding.session, finding.rank)
        first = self.first_divergence.get(place)
        if first is None or (finding.step, finding.seq) < (first.step, first.seq):
            self.first_divergence[place] = finding

    @property
    def rows(self) -> int:
        """All rows of the results folder."""
        return sum(self.verdicts.values())

    @property
    def failed(self) -> int:
        """Calls that failed."""
        return self.verdicts["error"]

    @property
    def worst(self) -> list[Finding]:
        """The worst calls, worst first."""
        return [entry[-1] for entry in sorted(self._worst, reverse=True)]

    @property
    def dropped(self) -> int:
        """Calls that writers gave up because the spool was full."""
        return sum(session.counts.get("dropped", 0) for session in self.sessions)

    @property
    def incomplete(self) -> list[SessionState]:
        """Sessions that never came to a good end."""
        return [session for session in self.sessions if not session.complete]

    @property
    def unjudged(self) -> int:
        """Bundles that went into quarantine during this run."""
        return max(len(self.quarantined), self.quarantine_growth)

    @property
    def unused(self) -> list[str]:
        """Entries of the list of known differences that no call needed: fixed, misspelt, or not run."""
        return [label for label in self.listed if label not in self.known and label not in self.expired]

    @property
    def exit_code(self) -> int:
        """0 all passed, 1 some failed or could not be judged at all, 5 nothing was checked."""
        if self.failed or self.unjudged or self.internal:
            return 1
        return 0 if self.checked else 5

    def result_line(self) -> str:
        """The one line that says how it ended."""
        order = sorted(SEVERITY, key=lambda verdict: -SEVERITY[verdict])
        counts = ", ".join(f"{self.verdicts[verdict]} {verdict}" for verdict in order if self.verdicts[verdict])
        more = [f"{self.unjudged} quarantined"] if self.unjudged else []
        more += [f"{self.internal} internal errors"] if self.internal else []
        more += [f"{self.dropped} dropped"] if self.dropped else []
        more += [f"{len(self.incomplete)} incomplete sessions"] if self.incomplete else []
        more += [f"{len(self.unused)} known differences unused"] if self.unused else []
        more += [f"{len(self.expired)} known differences expired"] if self.expired else []
        more += ["stopped before the end"] if self.stopped else []
        word = {0: "PASS", 1: "FAIL", 5: "NOTHING CHECKED"}[self.exit_code]
        return f"RESULT {word}: {', '.join([counts or 'no rows', *more])}"

    def to_json(self) -> dict[str, Any]:
        """As the last line of `--json`."""
        return {
            "verdicts": dict(self.verdicts),
            "rows": self.rows,
            "checked": self.checked,
            "operators": {name: dict(counts) for name, counts in sorted(self.operators.items())},
            "worst": [_plain(finding) for finding in self.worst],
            "first_divergence": [_plain(finding) for _, finding in sorted(self.first_divergence.items())],
            "sessions": [
                {
                    **asdict(session),
                    "complete": session.complete,
                    "rows": self.session_rows[session.session, session.rank],
                }
                for session in self.sessions
            ],
            "quarantined": self.quarantined,
            "quarantine_growth": self.quarantine_growth,
            "internal": self.internal,
            "skips": dict(self.skips.most_common()),
            "known": dict(self.known),
            "known_unused": self.unused,
            "known_expired": dict(self.expired),
            "dropped": self.dropped,
            "fenced": self.fenced,
            "repeated": self.repeated,
            "seconds": round(self.seconds, 3),
            "stopped": self.stopped,
            "exit_code": self.exit_code,
            "results": self.results,
            "reports": self.reports,
        }


def summarise(rows: Iterable[Mapping[str, Any]]) -> Summary:
    """The summary of rows, such as those of `Merged`; every row counts as checked."""
    summary = Summary()
    for row in rows:
        summary.add(finding_of(row))
    summary.checked = sum(count for verdict, count in summary.verdicts.items() if verdict != "skip")
    return summary


def summary_line(summary: Summary) -> dict[str, Any]:
    """The object that ends a `--json` stream."""
    return {"v": ROW_VERSION, "summary": summary.to_json()}


def _plain(finding: Finding) -> dict[str, Any]:
    plain = asdict(finding)
    if finding.ratio is not None and not math.isfinite(finding.ratio):
        plain["ratio"] = str(finding.ratio)
    return plain

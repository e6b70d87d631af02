"""JUnit XML for CI: one suite a rank, one test case an API, so that its name and history stay the same from run to run.

A case fails when a call of its API fails, and tells the first failing calls in execution order; it is skipped when none of its
calls was judged. What is wrong with the whole (no call judged, rows that cannot be read, bundles in quarantine, sessions that
never ended) are cases of a suite of their own: a CI run must not be green because nothing was there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from spool import ResultsError

from .rows import Finding, finding_of, number
from .summary import Summary
from .terminal import sanitised

FILE_NAME = "junit.xml"
_TOLD = 20
_LONG = 2000
_LONGEST = 1e6


@dataclass
class _Case:
    """The calls of one API on one rank."""

    calls: int = 0
    judged: int = 0
    failed: int = 0
    seconds: float = 0.0
    skipped: str = ""
    warnings: list[str] = field(default_factory=list)
    failures: list[tuple[Finding, str]] = field(default_factory=list)

    def add(self, finding: Finding, row: Mapping[str, Any]) -> None:
        self.calls += 1
        timings = row.get("timings")
        spent = number(timings.get("total")) if isinstance(timings, Mapping) else None
        self.seconds += min(max(0.0, spent or 0.0), _LONGEST)
        if finding.verdict == "skip":
            self.skipped = self.skipped or finding.message
            return
        self.judged += 1
        if finding.verdict == "error":
            self.failed += 1
            if len(self.failures) < _TOLD:
                self.failures.append((finding, str(row.get("reproduce") or "")))
        elif finding.verdict in ("warning", "known") and len(self.warnings) < _TOLD:
            self.warnings.append(f"{finding.verdict} {_call(finding)}")


def write_junit(
    rows: Iterable[Mapping[str, Any]], summary: Summary, folder: Path, *, problems: Sequence[str] = ()
) -> Path:
    """Write `junit.xml` of the rows into `folder`; returns its path. `problems` are read after the rows."""
    ranks: dict[int, dict[tuple[str, str], _Case]] = {}
    for row in rows:
        finding = finding_of(row)
        cases = ranks.setdefault(finding.rank, {})
        cases.setdefault((finding.operator, finding.phase), _Case()).add(finding, row)
    root = ElementTree.Element("testsuites", name="spool-check")
    for rank, cases in sorted(ranks.items()):
        elements = [_element(rank, *name, case) for name, case in sorted(cases.items())]
        root.append(_suite(f"spool-check rank {rank}", elements))
    root.append(_suite("spool-check results", list(_whole(summary, problems))))
    for total in ("tests", "failures", "errors", "skipped"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    return _write(root, folder)


def _suite(name: str, cases: Sequence[ElementTree.Element]) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=name, tests=str(len(cases)))
    for tag, total in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(total, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")
    suite.extend(cases)
    return suite


def _element(rank: int, operator: str, phase: str, case: _Case) -> ElementTree.Element:
    name = f"{operator} ({phase})" if phase else operator
    element = _case(f"spool_check.rank{rank}", name, case.seconds)
    if case.failures:
        first, _ = case.failures[0]
        message = f"{case.failed} of {case.calls} calls fail, first {_call(first)}"
        _say(element, "failure", message, _failures(case), kind="error")
    elif not case.judged:
        _say(element, "skipped", case.skipped or "not judged")
    if case.warnings:
        ElementTree.SubElement(element, "system-out").text = "\n".join(case.warnings)
    return element


def _failures(case: _Case) -> str:
    lines = []
    for finding, reproduce in case.failures:
        lines.append(_call(finding))
        lines += [f"  reproduce: {sanitised(reproduce, _LONG)}"] if reproduce else []
    if case.failed > len(case.failures):
        lines.append(f"and {case.failed - len(case.failures)} more")
    return "\n".join(lines)


def _call(finding: Finding) -> str:
    over = "" if finding.ratio is None else f" {finding.ratio:.3g}x its limit"
    return (
        f"{sanitised(finding.api, 160)} step {finding.step} seq {finding.seq}:{over} {sanitised(finding.message, 300)}"
    )


def _whole(summary: Summary, problems: Sequence[str]) -> Iterator[ElementTree.Element]:
    """One case for each way in which the results as a whole can be worth nothing."""
    quarantined = [f"{entry['api']}: {entry['reason']}" for entry in summary.quarantined]
    if summary.unjudged > len(quarantined):
        quarantined.append(
            f"{summary.unjudged - len(quarantined)} bundles, with their reasons beside them in the spool"
        )
    states = [f"session {item.session} of rank {item.rank} is {item.state}" for item in summary.incomplete]
    internal = [f"{summary.internal} calls ended in an internal error of spool-check"] if summary.internal else []
    nothing = [] if summary.checked else ["no call was judged"]
    faults = {
        "calls were judged": nothing,
        "every row could be read": problems,
        "no bundle is in quarantine": quarantined,
        "every session came to its end": states,
        "spool-check itself did not fail": internal,
    }
    for name, said in faults.items():
        case = _case("spool_check.results", name, 0.0)
        if said:
            _say(case, "error", said[0], "\n".join(sanitised(line, _LONG) for line in said))
        yield case


def _case(classname: str, name: str, seconds: float) -> ElementTree.Element:
    return ElementTree.Element("testcase", classname=classname, name=sanitised(name, 200), time=f"{seconds:.3f}")


def _say(case: ElementTree.Element, tag: str, message: str, text: str = "", kind: str | None = None) -> None:
    said = ElementTree.SubElement(case, tag, message=sanitised(message, 500))
    if kind is not None:
        said.set("type", kind)
    if text:
        said.text = text


def _write(root: ElementTree.Element, folder: Path) -> Path:
    path = folder / FILE_NAME
    part = folder / f".{FILE_NAME}.{os.getpid()}"
    ElementTree.indent(root)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))
        part.replace(path)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be written: {error.strerror}; give another --out") from error
    return path

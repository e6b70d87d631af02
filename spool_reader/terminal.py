"""What a person sees of a running judging: one live table on a terminal, plain lines and a heartbeat elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping
from typing import TextIO

from .accounts import account_lines
from .events import Event, Finished, Notice, Progress, RowWritten, Started
from .rows import SEVERITY, Finding
from .summary import Summary

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Besides, what no text file can hold: half a surrogate pair, and the two characters that XML forbids.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
# So many reasons of skip rows are told, the most frequent ones.
_REASONS = 5
_COLOURS = {"error": "31", "warning": "33", "known": "36", "pass": "32", "skip": "2"}
_HEARTBEAT_SECONDS = 10.0
_LIVE_ROWS = 8


def sanitised(text: object, width: int | None = None) -> str:
    """Text of a bundle without anything that a terminal would act on or a file cannot hold, and no longer than `width`."""
    clean = _CONTROL.sub(" ", _ESCAPES.sub("", str(text)))
    return clean if width is None or len(clean) <= width else clean[: max(width - 1, 0)] + "…"


class TerminalView:
    """A listener that talks on one stream, usually stderr, and writes the result at the end to another, usually stdout.

    Attributes of the stream decide: a terminal gets the live table, anything else lines and a heartbeat.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        results: TextIO | None = None,
        live: bool | None = None,
        heartbeat: float = _HEARTBEAT_SECONDS,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._stream = stream
        self._results = results or stream
        self._live = stream.isatty() and environ.get("TERM") != "dumb" if live is None else live
        self._colour = self._live and not environ.get("NO_COLOR")
        self._heartbeat = heartbeat
        self._beat = time.monotonic()
        self._drawn = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, RowWritten):
            if event.finding.verdict == "error" and not self._live:
                self._line(_failure(event.finding))
        elif isinstance(event, Progress):
            self._progress(event)
        elif isinstance(event, Started):
            found = f", which holds {event.found} rows already" if event.found else ""
            workers = f"{event.workers} worker processes" if event.workers else "this process"
            devices = ", ".join(event.devices)
            self._line(f"judging {sanitised(event.spool)} on {devices} with {workers}; results in {event.out}{found}")
        elif isinstance(event, Notice):
            self._line(f"{event.level}: {sanitised(event.text)}" if event.level != "info" else sanitised(event.text))
        elif isinstance(event, Finished):
            self._erase()
            colour = self._colour and self._results.isatty()
            self._results.write("\n".join(summary_lines(event.summary, colour=colour)) + "\n")
            self._results.flush()

    def _progress(self, event: Progress) -> None:
        if self._live:
            self._draw(event)
        elif time.monotonic() - self._beat >= self._heartbeat:
            self._beat = time.monotonic()
            self._line(_state(event))

    def _line(self, text: str) -> None:
        self._erase()
        self._stream.write(text + "\n")
        self._stream.flush()

    def _draw(self, event: Progress) -> None:
        width = max(shutil.get_terminal_size().columns, 20) - 1
        lines = [_state(event)]
        lines += [
            f"  rank {session.rank}: {session.state}, {session.counts.get('published', 0)} calls published"
            for session in event.sessions[:_LIVE_ROWS]
        ]
        worst = [finding for finding in event.summary.worst if finding.verdict == "error"][:_LIVE_ROWS]
        lines += [f"  {_failure(finding)}" for finding in worst]
        self._erase()
        for line in lines:
            colour = "error" if line.startswith("  error") else None
            self._stream.write(self._paint(sanitised(line, width), colour) + "\n")
        self._drawn = len(lines)
        self._stream.flush()

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0

    def _paint(self, text: str, verdict: str | None) -> str:
        code = _COLOURS.get(verdict or "")
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code else text


def summary_lines(summary: Summary, *, colour: bool = False) -> list[str]:
    """The end of a run: where it first went wrong, the ten worst calls, what is missing, and the result."""
    lines: list[str] = []
    for (writer, rank), finding in sorted(summary.first_divergence.items()):
        lines.append(f"first divergence of rank {rank} (session {sanitised(writer, 40)}): {_failure(finding)}")
    bad = [finding for finding in summary.worst if SEVERITY[finding.verdict] >= SEVERITY["warning"]]
    if bad:
        lines.append("worst calls:")
        lines.append(f"  {'verdict':8} {'over limit':>10}  {'rank':>4} {'step':>5} {'seq':>6}  API")
        lines += [
            f"  {finding.verdict:8} {_ratio(finding):>10}  {finding.rank:>4} {finding.step:>5} {finding.seq:>6}  "
            f"{sanitised(finding.api, 60)}  {sanitised(finding.message, 100)}"
            for finding in bad
        ]
    lines += [f"known: {count} calls, {sanitised(label, 200)}" for label, count in summary.known.most_common()]
    lines += [
        f"known difference past its version, which {count} calls still show: {sanitised(label, 200)}"
        for label, count in summary.expired.most_common()
    ]
    lines += [f"known difference that no call showed: {sanitised(label, 200)}" for label in summary.unused]
    lines += [f"skipped: {count} calls: {sanitised(why, 120)}" for why, count in summary.skips.most_common(_REASONS)]
    if len(summary.skips) > _REASONS:
        others = sum(count for _, count in summary.skips.most_common()[_REASONS:])
        lines.append(f"skipped: {others} calls for {len(summary.skips) - _REASONS} other reasons, each in its row")
    lines += account_lines(summary)
    for entry in summary.quarantined[:10]:
        place = f"rank {entry['rank']} step {entry['step']} seq {entry['seq']} {sanitised(entry['api'], 60)}"
        lines.append(f"in quarantine: {place}: {sanitised(entry['reason'], 160)}")
    if summary.unjudged > len(summary.quarantined):
        others = summary.unjudged - len(summary.quarantined)
        lines.append(f"in quarantine: {others} more bundles; their reasons stand beside them in the spool's quarantine")
    for session in summary.incomplete:
        lines.append(f"incomplete: session {sanitised(session.session, 40)} of rank {session.rank} is {session.state}")
    if summary.dropped:
        lines.append(f"dropped: the training gave up {summary.dropped} calls because the spool was full")
    if summary.fenced:
        lines.append(f"fenced: {summary.fenced} bundles had been taken back by another reader")
    lines += [f"report: {path}" for path in summary.reports]
    result = summary.result_line()
    code = {0: _COLOURS["pass"], 1: _COLOURS["error"]}.get(summary.exit_code)
    lines.append(f"\x1b[{code}m{result}\x1b[0m" if colour and code else result)
    return lines


def _failure(finding: Finding) -> str:
    place = f"step {finding.step} seq {finding.seq}"
    return (
        f"{finding.verdict} {sanitised(finding.api, 60)} rank {finding.rank} {place}: {sanitised(finding.message, 200)}"
    )


def _ratio(finding: Finding) -> str:
    return "" if finding.ratio is None else f"{finding.ratio:.3g}x"


def _state(event: Progress) -> str:
    verdicts = event.summary.verdicts
    order = sorted(SEVERITY, key=lambda verdict: -SEVERITY[verdict])
    counts = " ".join(f"{verdict} {verdicts[verdict]}" for verdict in order if verdicts[verdict])
    waiting = f"; {event.waiting}" if event.waiting else ""
    quarantined = f", quarantined {event.quarantined}" if event.quarantined else ""
    return (
        f"judged {event.summary.rows} ({event.rate:.0f}/s): {counts or 'none yet'}; "
        f"ready {event.ready}, in hand {event.in_hand}{quarantined}{waiting}{_left(event.seconds_left)}"
    )


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"; about {seconds / size:.1f} {unit} left"
    return f"; about {seconds:.0f} s left"

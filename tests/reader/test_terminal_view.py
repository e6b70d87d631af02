"""What a person sees: plain lines or a live table, and never a control character out of a bundle."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from spool_reader.events import Finished, Notice, Progress, RowWritten, Started
from spool_reader.rows import Finding
from spool_reader.summary import SessionState, Summary
from spool_reader.terminal import TerminalView, sanitised, summary_lines

EVIL = {
    "colour": ("a\x1b[31mred\x1b[0mb", "aredb"),
    "clear screen": ("\x1b[2J\x1b[Hx", "x"),
    "window title": ("\x1b]0;owned\x07x", "x"),
    "title without an end": ("\x1b]0;owned", ""),
    "line feed": ("a\nb\rc\td", "a b c d"),
    "backspace": ("pass\b\b\b\bfail", "pass    fail"),
    "eight bit escape": ("\x9b31mx", " 31mx"),
    "null": ("a\x00b", "a b"),
    "right to left": ("a\u202eb", "a b"),
    "bare escape": ("a\x1b", "a "),
    "plain": ("Functional.linear.4", "Functional.linear.4"),
    "Chinese": ("余弦", "余弦"),
}


@pytest.mark.parametrize("name", sorted(EVIL))
def test_text_of_bundles_is_sanitised(name: str) -> None:
    text, clean = EVIL[name]
    assert sanitised(text) == clean


def test_long_text_is_cut() -> None:
    assert sanitised("abcdef", 4) == "abc…"
    assert sanitised("abcd", 4) == "abcd"


def finding(**more: Any) -> Finding:
    fields: dict[str, Any] = {
        "session": "s1", "rank": 0, "step": 2, "seq": 7, "api": "Torch.mm.3", "phase": "forward", "verdict": "error",
        "standard": "ulp", "ratio": 40.0, "message": "off by 3 %", **more,
    }  # fmt: skip
    return Finding(**fields)


def events(*, evil: str = "") -> list[Any]:
    summary = Summary(results="out", reports=["out/a.csv"])
    bad = finding(api=f"Torch.mm{evil}.3", message=f"off{evil}")
    summary.add(bad)
    summary.add(finding(seq=8, verdict="pass"))
    summary.checked = 2
    states = (SessionState("s1", 0, "open", {"published": 2}),)
    summary.sessions = [SessionState(f"s{evil}", 0, "dead", {"dropped": 4})]
    summary.quarantined = [{"rank": 0, "step": 0, "seq": 1, "api": f"x{evil}", "reason": f"y{evil}"}]
    return [
        Started(f"/spool{evil}", "out", ("cpu",), 1, 3),
        RowWritten(bad, b"{}\n"),
        Progress(summary, 5, 6, 1, 12.0, states, ""),
        Notice("warning", f"careful{evil}"),
        Finished(summary),
    ]


def shown(*, live: bool, environ: dict[str, str] | None = None, heartbeat: float = 0.0, evil: str = "") -> str:
    stream = io.StringIO()
    view = TerminalView(stream, live=live, heartbeat=heartbeat, environ=environ or {})
    for event in events(evil=evil):
        view(event)
    return stream.getvalue()


def test_elsewhere_lines_and_a_heartbeat() -> None:
    text = shown(live=False)
    assert "\x1b" not in text
    for part in (
        "judging /spool on cpu with 1 worker processes; results in out, which holds 3 rows already",
        "error Torch.mm.3 rank 0 step 2 seq 7: off",
        "judged 2 (12/s): error 1 pass 1; ready 5, in hand 6, quarantined 1",
        "warning: careful",
        "first divergence of rank 0",
        "in quarantine: rank 0 step 0 seq 1 x: y",
        "incomplete: session s of rank 0 is dead",
        "dropped: the training gave up 4 calls",
        "report: out/a.csv",
    ):
        assert part in text
    assert text.splitlines()[-1].startswith("RESULT FAIL: 1 error, 1 pass, 1 quarantined, 4 dropped, 1 incomplete")
    assert "judged" not in shown(live=False, heartbeat=60.0), "no heartbeat before its time"


def test_on_a_terminal_the_table_is_drawn_over_itself() -> None:
    text = shown(live=True)
    assert re.search(r"\x1b\[3F\x1b\[J", text), "three lines are taken back before the next"
    assert "\x1b[31m" in text
    final = text.rsplit("\x1b[J", 1)[-1]
    assert "RESULT FAIL" in final


def test_no_color_is_respected() -> None:
    assert not re.search(r"\x1b\[\d+m", shown(live=True, environ={"NO_COLOR": "1"}))


@pytest.mark.parametrize("live", [True, False])
def test_nothing_of_a_bundle_reaches_the_terminal_as_a_command(live: bool) -> None:
    text = shown(live=live, environ={"NO_COLOR": "1"}, evil="\x1b[2J\x1b]0;owned\x07\x9b\r")
    allowed = re.sub(r"\x1b\[\d+F\x1b\[J", "", text)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", allowed)
    assert "owned" not in allowed


def test_a_clean_end_is_one_line() -> None:
    summary = Summary()
    summary.add(finding(verdict="pass"))
    summary.checked = 1
    assert summary_lines(summary) == ["RESULT PASS: 1 pass"]

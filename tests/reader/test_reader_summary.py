"""The numbers at the end: counts, worst calls, first divergence, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spool_reader.results import read_rows
from spool_reader.rows import Finding, encode_row
from spool_reader.summary import SessionState, Summary, summarise, summary_line


def finding(seq: int, verdict: str = "pass", *, ratio: float | None = None, **more: Any) -> Finding:
    fields: dict[str, Any] = {
        "session": "s1", "rank": 0, "step": 0, "api": f"Torch.add.{seq}", "phase": "forward", "standard": "benchmark",
        "message": "", **more,
    }  # fmt: skip
    return Finding(seq=seq, verdict=verdict, ratio=ratio, **fields)


def summed(*findings: Finding, **more: Any) -> Summary:
    summary = Summary(**more)
    for item in findings:
        summary.add(item)
        summary.checked += item.verdict != "skip"
    return summary


EXIT = {
    "all passed": (summed(finding(0), finding(1)), 0),
    "a warning is no failure": (summed(finding(0), finding(1, "warning")), 0),
    "one failed": (summed(finding(0), finding(1, "error")), 1),
    "nothing at all": (summed(), 5),
    "only skips": (summed(finding(0, "skip")), 5),
    "spool-check itself failed on one": (
        summed(finding(0), finding(1, "skip", message="internal error of spool-check: KeyError: 'x'")), 1,
    ),
    "known differences": (summed(finding(0, "known")), 0),
    "one in quarantine": (summed(finding(0), quarantined=[{"rank": 0, "step": 0, "seq": 1, "api": "x", "reason": "y"}]), 1),
    "an incomplete session alone": (summed(finding(0), sessions=[SessionState("s1", 0, "dead", {})]), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(EXIT))
def test_exit_codes(name: str) -> None:
    summary, code = EXIT[name]
    assert summary.exit_code == code
    assert {0: "PASS", 1: "FAIL", 5: "NOTHING"}[code] in summary.result_line()


def test_worst_calls_are_errors_by_ratio_then_warnings() -> None:
    summary = summed(
        *(finding(seq, "pass", ratio=seq / 100) for seq in range(50)),
        finding(60, "warning", ratio=900.0),
        finding(61, "error", ratio=2.0),
        finding(62, "error", ratio=3.0),
        finding(63, "error"),
    )
    assert [item.seq for item in summary.worst] == [63, 62, 61, 60, 49, 48, 47, 46, 45, 44]


def test_first_divergence_is_by_execution_order_in_each_rank() -> None:
    summary = summed(
        finding(9, "error", step=2),
        finding(30, "error", step=1),
        finding(4, "error", step=1),
        finding(1, "warning", step=0),
        finding(2, "error", step=7, rank=1),
        finding(3, "error", step=0, session="s2"),
    )
    found = {(key): (item.step, item.seq) for key, item in summary.first_divergence.items()}
    assert found == {("s1", 0): (1, 4), ("s1", 1): (7, 2), ("s2", 0): (0, 3)}


def test_operators_are_counted_without_their_numbers() -> None:
    summary = summed(finding(0), finding(1, "error"), finding(2, api="Torch.linalg.norm.7"))
    assert summary.operators == {"Torch.add": {"pass": 1, "error": 1}, "Torch.linalg.norm": {"pass": 1}}


def test_the_summary_is_strict_json() -> None:
    summary = summed(finding(0, "error", ratio=float("inf")), sessions=[SessionState("s", 0, "closed", {"dropped": 3})])
    text = json.dumps(summary_line(summary), allow_nan=False)
    read = json.loads(text)
    assert read["v"] == 1
    assert read["summary"]["worst"][0]["ratio"] == "inf"
    assert read["summary"]["dropped"] == 3
    assert read["summary"]["sessions"][0]["complete"] is True


def test_any_set_of_folders_can_be_summed_up(tmp_path: Path) -> None:
    for name, verdict in (("a", "pass"), ("b", "error")):
        (tmp_path / name).mkdir()
        row = {
            "v": 1, "session": "s1", "rank": 0, "step": 0, "seq": 1, "api": "Torch.add.0", "phase": "forward",
            "verdict": verdict, "standard": "x", "message": "", "outputs": [{"ratio": "nan"}, {"ratio": 0.5}],
        }  # fmt: skip
        (tmp_path / name / "results-rank0.jsonl").write_bytes(encode_row(row))
    summary = summarise(read_rows([tmp_path / "a", tmp_path / "b"]))
    assert summary.verdicts == {"pass": 1, "error": 1}
    assert summary.worst[0].ratio == float("inf")
    assert summary.exit_code == 1

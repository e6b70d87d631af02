"""JUnit XML as CI reads it: parsed, counted, and red whenever something is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from report_rows import CALLS, row, training, write_rows

from cli import main

BAD = "<&\"'>]]>\x1b[31m\x00\ud800\uffff"


def run(*words: Any) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def junit(folder: Path) -> ElementTree.Element:
    return ElementTree.parse(folder / "junit.xml").getroot()


def cases(root: ElementTree.Element) -> dict[tuple[str, str], ElementTree.Element]:
    return {(case.get("classname", ""), case.get("name", "")): case for case in root.iter("testcase")}


def test_a_case_for_each_api_of_each_rank(tmp_path: Path) -> None:
    rows = training()
    done = run("report", write_rows(tmp_path, rows), "--format", "junit")
    assert done.exit_code == 1
    assert f"report: {tmp_path / 'junit.xml'}" in done.output
    root = junit(tmp_path)
    found = cases(root)
    assert len(found) == 2 * len(CALLS) + 5
    wrong = {name for name, case in found.items() if case.find("failure") is not None}
    assert wrong == {(f"spool_check.rank{rank}", "Functional.layer_norm (forward)") for rank in (0, 1)}
    failure = found["spool_check.rank0", "Functional.layer_norm (forward)"].find("failure")
    assert failure is not None
    assert failure.get("message") == (
        "2 of 4 calls fail, first Functional.layer_norm.0 step 2 seq 1: 4x its limit max_abs_err 4.0 exceeds 1"
    )
    assert len((failure.text or "").splitlines()) == 2
    skipped = found["spool_check.rank1", "Torch.randint (forward)"].find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "random: randint"


def test_the_counts_are_those_of_the_elements(tmp_path: Path) -> None:
    run("report", write_rows(tmp_path, training()), "--format", "junit")
    root = junit(tmp_path)
    for element in (root, *root):
        inside = list(element.iter("testcase"))
        counts = {"tests": len(inside)}
        for tag, total in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            counts[total] = sum(case.find(tag) is not None for case in inside)
        assert {name: int(element.get(name, "-1")) for name in counts} == counts
    assert root.get("failures") == "2"


def test_the_command_that_reproduces_stands_in_the_failure(tmp_path: Path) -> None:
    bad = row(ratio=3.0, reproduce="spool-check replay saved.safetensors")
    run("report", write_rows(tmp_path, [bad]), "--format", "junit")
    [failure] = junit(tmp_path).iter("failure")
    assert "reproduce: spool-check replay saved.safetensors" in (failure.text or "")


def test_names_and_messages_cannot_break_the_file(tmp_path: Path) -> None:
    bad = row(api=f"Functional.{BAD}.0", ratio=3.0, message=BAD, phase=BAD, reproduce=BAD, timings={"total": "inf"})
    run(
        "report",
        write_rows(tmp_path, [bad, row(seq=1, ratio=0.5, verdict="warning", message=BAD)]),
        "--format",
        "junit",
    )
    [failure] = junit(tmp_path).iter("failure")
    assert "<&\"'>]]>" in (failure.text or "")


WHOLE: dict[str, tuple[list[dict[str, Any]], bytes, str, int]] = {
    "nothing": ([], b"", "calls were judged", 5),
    "only skipped": ([row(verdict="skip")], b"", "calls were judged", 5),
    "damaged lines": ([row()], b"{\n", "every row could be read", 3),
}


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_ci_is_red_when_the_whole_is_worth_nothing(name: str, tmp_path: Path) -> None:
    rows, more, wrong, code = WHOLE[name]
    folder = write_rows(tmp_path, rows)
    with (folder / "results-rank0.jsonl").open("ab") as file:
        file.write(more)
    assert run("report", folder, "--format", "junit").exit_code == code
    root = junit(folder)
    assert [case for (_, case), element in cases(root).items() if element.find("error") is not None] == [wrong]
    assert root.get("errors") == "1"

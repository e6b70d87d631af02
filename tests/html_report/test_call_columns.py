"""Very many calls: which are listed, which open, and that nothing worst is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_rows import packed, row

from spool_reader.html_report.calls import Calls
from spool_reader.html_report.details import Details
from spool_reader.html_report.overview import ranges
from spool_reader.html_report.writing import write_report
from spool_reader.rows import finding_of
from spool_reader.summary import summarise


def many() -> list[dict[str, object]]:
    """Two steps of thirty passing calls, ever nearer to the limit, one error in each step and a warning."""
    rows = [row(0, step, seq, f"Torch.mul.{seq}", ratio=0.01 * (seq + 1)) for step in range(2) for seq in range(30)]
    rows += [row(0, step, 30, "Torch.mul.30", ratio=5.0 + step) for step in range(2)]
    return [*rows, row(0, 1, 31, "Torch.exp.0", ratio=1.5, verdict="warning")]


def kept_seqs(limit: int) -> list[tuple[int, int]]:
    calls, rows = Calls(), many()
    for item in rows:
        calls.add(finding_of(item), item)
    columns = calls.to_json(calls.kept(limit))["columns"]
    return list(zip(columns["step"], columns["seq"], strict=True))


def test_all_calls_are_listed_up_to_the_limit() -> None:
    assert len(kept_seqs(63)) == 63


def test_past_the_limit_the_worst_passing_call_of_each_place_stays() -> None:
    assert kept_seqs(62) == [(0, 29), (1, 29), (0, 30), (1, 30), (1, 31)]


def test_far_past_the_limit_the_worst_calls_stay() -> None:
    assert kept_seqs(2) == [(0, 30), (1, 30)]


def test_the_page_says_how_many_calls_it_does_not_list(tmp_path: Path) -> None:
    rows = many()
    page = write_report(rows, summarise(rows), tmp_path, listed=10).read_text()
    assert "58 calls that are not the worst" in page
    [data] = packed(page, "data")
    opened = [detail["outputs"][0]["ratio"] for piece in packed(page, "pieces") for detail in piece]
    assert [data["columns"]["ratio"][call] for call in data["opening"]] == opened == [5.0, 6.0, 1.5]


@pytest.mark.parametrize(
    ("limit", "opened"),
    [(1000, list(range(50))), (3, [0, 48, 49])],
    ids=["all", "the first divergence and the worst"],
)
def test_the_worst_failing_calls_open(limit: int, opened: list[int]) -> None:
    details = Details(limit)
    for number in range(50):
        item = row(seq=number, ratio=2.0 + number)
        details.add(number, finding_of(item), item)
    places, _ = details.packed(list(range(50)))
    assert (places, details.failing) == (opened, 50)


RANGES: dict[str, list[int]] = {
    "": [],
    "4": [4],
    "0-3, 7": [7, 0, 1, 2, 3],
    "0, 2, 4, 6, 8, 10": [0, 2, 4, 6, 8, 10],
    "0 … 13 (8 in all)": [0, 2, 4, 6, 8, 10, 12, 13],
}


@pytest.mark.parametrize("text", RANGES)
def test_numbers_are_told_as_ranges(text: str) -> None:
    assert ranges(RANGES[text]) == text

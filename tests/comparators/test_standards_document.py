"""docs/standards.md prints what this code does: its tables are made again and compared."""

from __future__ import annotations

import math

import pytest
from fault_cases import APIS
from standards_tables import DOCUMENT, fault_table, smallest_found, table_in

from comparators import load_profile
from comparators.names import STANDARDS


def test_the_smallest_errors_are_current() -> None:
    assert table_in(DOCUMENT.read_text(encoding="utf-8"), "smallest") == smallest_found()


@pytest.mark.slow
def test_the_fault_table_is_current_and_complete() -> None:
    table = fault_table()
    assert table_in(DOCUMENT.read_text(encoding="utf-8"), "faults") == table
    for line in table.splitlines()[2:]:
        fault, judged, flagged = (cell.strip() for cell in line.strip("|").split("|"))
        assert flagged == ("0" if fault.startswith("clean") else judged)


def test_the_document_names_standards_profiles_and_counts() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert all(standard in text for standard in STANDARDS)
    assert all(f"| `{name}` |" in text for name in ("default", "msprobe-8.3", "cann"))
    assert f"into {len(APIS)} APIs" in text


LIMIT_ROWS = {
    "small_value": "small_value",
    "rtol": "rtol",
    "accumulative_bound": "accumulative_bound",
    "min_err": "min_err",
}


@pytest.mark.parametrize("row", LIMIT_ROWS)
def test_the_limits_in_the_document_are_the_codes(row: str) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith(f"| {row} |"))
    shown = [cell.strip() for cell in line.strip("|").split("|")][1:]
    dtypes = ("float16", "bfloat16", "float32", "float8_e4m3", "float8_e5m2")
    limits = [load_profile().limits("Torch.exp.0", dtype)[LIMIT_ROWS[row]] for dtype in dtypes]
    assert shown == [f"2^{round(math.log2(value))}" for value in limits]

"""A writer and two readers as separate processes: every call one row, nothing left, nothing judged twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from processes import key_of, left_in, rows_of

WRITER = """
import sys, torch
from spool_check import PrecisionDebugger
x = torch.arange(12.0).reshape(3, 4)
with PrecisionDebugger(spool=sys.argv[1]) as debugger:
    for step in range(10):
        for call in range(100):
            torch.add(x, call)
            torch.mul(x, 0.5)
        debugger.step()
"""


def test_two_readers_share_two_thousand_bundles(tmp_path: Path, start_cli: Any, script: Any) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    readers = [start_cli("watch", spool, "--out", tmp_path / name, "--workers", 1) for name in ("a", "b")]
    written = script(WRITER, spool)
    assert written.returncode == 0, written.stderr
    outputs = [reader.communicate(timeout=180) for reader in readers]
    rows = rows_of(tmp_path / "a", tmp_path / "b")
    assert len(rows) == 2000, outputs
    assert len({key_of(row) for row in rows}) == 2000
    assert {row["verdict"] for row in rows} == {"pass"}
    assert left_in(spool) == []
    assert not list((spool / "quarantine").rglob("*")) if (spool / "quarantine").exists() else True
    # One that came too late for any bundle has checked nothing and says so with 5.
    assert {reader.returncode for reader in readers} <= {0, 5}
    assert 0 in {reader.returncode for reader in readers}

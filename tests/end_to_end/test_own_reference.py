"""A vendor operator that this tool does not know: a skip row, until the user brings a reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from processes import rows_of

TRAINING = """
import sys, torch
from spool_check import PrecisionDebugger
library = torch.library.Library("npu", "FRAGMENT")
library.define("npu_twice(Tensor self, float factor=2.0) -> Tensor")
library.impl("npu_twice", lambda self, factor=2.0: self * (factor if factor < 4 else factor + 0.1), "CPU")
with PrecisionDebugger(spool=sys.argv[1]):
    for factor in (2.0, 3.0, 4.0):
        torch.ops.npu.npu_twice(torch.linspace(1, 2, 64), factor)
"""

REFERENCE = """
import fused_ops

@fused_ops.register("npu_twice(Tensor self, float factor=2.0) -> Tensor", source="our kernel's manual")
def twice(run, self, factor):
    return run.down(run.up(self) * factor, self.dtype)
"""


def verdicts(folder: Path) -> list[str]:
    rows = sorted(rows_of(folder), key=lambda row: row["seq"])
    return [row["verdict"] for row in rows if row["api"].startswith("NPU.npu_twice")]


def test_a_user_s_reference_is_used(tmp_path: Path, cli: Any, script: Any) -> None:
    (tmp_path / "our_references.py").write_text(REFERENCE, encoding="utf-8")
    for name in ("without", "with"):
        assert script(TRAINING, tmp_path / name).returncode == 0
    without = cli("reprocess", tmp_path / "without", "--out", tmp_path / "a", "--workers", 1)
    assert verdicts(tmp_path / "a") == ["skip"] * 3
    assert all("no reference for NPU.npu_twice" in row["message"] for row in rows_of(tmp_path / "a") if row["seq"] % 2)
    assert without.returncode == 0
    given = cli("reprocess", tmp_path / "with", "--out", tmp_path / "b", "--workers", 1, "--import", "our_references")
    assert verdicts(tmp_path / "b") == ["pass", "pass", "error"], given.stderr
    assert given.returncode == 1

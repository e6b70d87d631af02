"""Ranks, processes, steps and sessions in one spool: every call has its own name and its own row."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from processes import environment, key_of, left_in, rows_of

TRAINING = """
import sys, torch
from spool_check import PrecisionDebugger
for session in range(2):
    with PrecisionDebugger(spool=sys.argv[1]) as debugger:
        for step in range(3):
            for number in range(10):
                torch.ones(3).add(float(sys.argv[2]))
            debugger.step()
"""


def test_two_ranks_of_two_processes_with_two_sessions_each(tmp_path: Path, cli: Any) -> None:
    spool, out = tmp_path / "spool", tmp_path / "out"
    spool.mkdir()
    # Two launches at once that both say that they are rank 0, as when a job is started twice by mistake, and two of rank 1.
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TRAINING, str(spool), str(number)],
            env={**environment(), "RANK": str(number % 2)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for process in processes:
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr
    names = [path.relative_to(spool) for path in spool.rglob("*.safetensors")]
    calls = 4 * 2 * 3 * 20
    assert len(names) == calls
    assert {os.fspath(name.parent) for name in names} == {f"rank{r}/step{s}" for r in range(2) for s in range(3)}
    judged = cli("reprocess", spool, "--out", out, "--workers", 2)
    assert judged.returncode == 0, judged.stderr
    rows = rows_of(out)
    assert len(rows) == calls
    assert len({key_of(row) for row in rows}) == calls
    assert len({row["session"] for row in rows}) == 8
    # Each session counted its own calls from zero in each step.
    for session in {row["session"] for row in rows}:
        for step in range(3):
            seqs = sorted(row["seq"] for row in rows if row["session"] == session and row["step"] == step)
            assert seqs == list(range(20))
    assert left_in(spool) == []

"""Readers in processes of their own: killed at any moment, two at once; every call has one row in the end."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from processes import environment, left_in, rows_of

READER = """
import sys
from spool_reader.watch import watch
if __name__ == "__main__":
    summary = watch(sys.argv[1], out=sys.argv[2], workers=int(sys.argv[3]), device="cpu", stale_after=2.0)
    print(summary.rows, summary.exit_code)
"""


@pytest.fixture
def reader(tmp_path: Path) -> Any:
    """`reader(out, workers)` starts one in a process of its own."""
    script = tmp_path / "reader.py"
    script.write_text(READER)
    started: list[subprocess.Popen[str]] = []

    def start(out: str = "out", workers: int = 0) -> subprocess.Popen[str]:
        command = [sys.executable, str(script), str(tmp_path / "spool"), str(tmp_path / out), str(workers)]
        started.append(
            subprocess.Popen(
                command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def fill(training: Any, steps: int, calls: int) -> None:
    writer = training()
    for step in range(steps):
        for _ in range(calls):
            writer.call(step=step)
    writer.close()


def wait_for_rows(process: subprocess.Popen[str], out: Path, count: int) -> None:
    end = time.monotonic() + 60
    while sum(path.read_bytes().count(b"\n") for path in out.glob("*.jsonl")) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_reader_that_is_killed_again_and_again_loses_nothing(
    workers: int, tmp_path: Path, training: Any, reader: Any
) -> None:
    fill(training, 4, 400)
    for rows in (50, 500):
        process = reader(workers=workers)
        wait_for_rows(process, tmp_path / "out", rows)
        process.kill()
        process.wait()
    process = reader(workers=workers)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert output.split() == ["1600", "0"]
    rows = rows_of(tmp_path / "out")
    assert len({(row["step"], row["seq"]) for row in rows}) == len(rows) == 1600
    assert left_in(tmp_path / "spool") == []


def test_a_reader_that_was_killed_at_the_very_end_ends_at_once_when_started_again(
    tmp_path: Path, training: Any, reader: Any
) -> None:
    fill(training, 1, 5)
    first = reader()
    first.communicate(timeout=60)
    (tmp_path / "out" / ".owner").write_text("{}")
    again = reader()
    output, errors = again.communicate(timeout=60)
    assert output.split() == ["5", "0"], errors


def test_two_reader_processes_give_each_call_one_row(tmp_path: Path, training: Any, reader: Any) -> None:
    (tmp_path / "spool").mkdir()
    readers = [reader(name, 1) for name in ("a", "b")]
    for process, name in zip(readers, "ab", strict=True):
        end = time.monotonic() + 60
        while not (tmp_path / name / ".owner").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.05)
    fill(training, 5, 200)
    for process in readers:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    rows = rows_of(tmp_path / "a", tmp_path / "b")
    assert len({(row["step"], row["seq"]) for row in rows}) == len(rows) == 1000
    assert left_in(tmp_path / "spool") == []

"""Worker processes that die, hang or cannot start: the bundle pays, its neighbours do not."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import left_in, rows_of

from spool import SpoolError, dump_bundle
from spool.memory import BytesSource
from spool_reader.answers import Task
from spool_reader.events import Notice
from spool_reader.judging import JudgeOptions
from spool_reader.watch import reprocess
from spool_reader.workers import WorkerPool

DEADLY = {
    "killed by a signal": ("NPU.npu_killed.0", "signal 9", {}),
    "ended": ("NPU.npu_exits.0", "status 7", {}),
    "hung": ("NPU.npu_hangs.0", "took longer than 1 s", {"call_timeout": 1.0}),
}


@pytest.mark.parametrize("name", sorted(DEADLY))
def test_a_poisonous_bundle_is_quarantined_after_three_attempts(
    name: str, tmp_path: Path, training: Any, poison: str
) -> None:
    api, cause, options = DEADLY[name]
    writer = training()
    for _ in range(10):
        writer.call()
    writer.call(api, args=(torch.ones(2),))
    for _ in range(10):
        writer.call()
    writer.close()
    notices: list[str] = []
    summary = reprocess(
        tmp_path / "spool",
        out=tmp_path / "out",
        workers=1,
        imports=[poison],
        on_event=lambda event: notices.append(event.text) if isinstance(event, Notice) else None,
        **options,
    )
    assert sorted(row["seq"] for row in rows_of(tmp_path / "out")) == [seq for seq in range(21) if seq != 10]
    assert [entry["seq"] for entry in summary.quarantined] == [10]
    assert cause in summary.quarantined[0]["reason"]
    assert sum(cause in text and "attempt" in text for text in notices) == 3, notices
    [kept] = left_in(tmp_path / "spool")
    assert kept.startswith("quarantine/")
    [reason] = (tmp_path / "spool" / "quarantine").rglob("*.json")
    assert json.loads(reason.read_text())["reason"]


def test_a_worker_that_is_killed_from_outside_costs_at_most_one_attempt(
    tmp_path: Path, training: Any, poison: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = training()
    for _ in range(30):
        writer.call("NPU.npu_slow.0", args=(torch.ones(2),))
    writer.close()
    pools: list[WorkerPool] = []
    start = WorkerPool.__init__

    def remember(pool: WorkerPool, *args: Any, **more: Any) -> None:
        pools.append(pool)
        start(pool, *args, **more)

    monkeypatch.setattr(WorkerPool, "__init__", remember)
    killed = threading.Event()

    def kill_one(event: object) -> None:
        if not killed.is_set() and rows_of(tmp_path / "out"):
            os.kill(pools[0].pids[0], signal.SIGKILL)
            killed.set()

    summary = reprocess(tmp_path / "spool", out=tmp_path / "out", workers=2, imports=[poison], on_event=kill_one)
    assert killed.is_set()
    assert sorted(row["seq"] for row in rows_of(tmp_path / "out")) == list(range(30))
    assert summary.quarantined == []
    assert left_in(tmp_path / "spool") == []


def test_a_worker_that_cannot_start_says_why(tmp_path: Path, training: Any) -> None:
    writer = training()
    writer.call()
    writer.close()
    with pytest.raises(SpoolError, match="no_such_module"):
        reprocess(tmp_path / "spool", out=tmp_path / "out", workers=1, imports=["no_such_module"])
    assert left_in(tmp_path / "spool") == ["rank0/step0/00000000.Torch.add.0.safetensors"]


def test_workers_that_die_at_the_start_cost_no_bundle_anything(
    tmp_path: Path, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly_import.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    writer = training()
    writer.call()
    writer.close()
    with pytest.raises(SpoolError, match=r"status 3 .*3 times"):
        reprocess(tmp_path / "spool", out=tmp_path / "out", workers=1, imports=["deadly_import"])
    assert left_in(tmp_path / "spool") == ["rank0/step0/00000000.Torch.add.0.safetensors"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_does_not_end_a_worker(number: signal.Signals, bundle: Any) -> None:
    """Not even while it starts."""
    pool = WorkerPool(["cpu"], JudgeOptions())
    try:
        for pause in (0.0, 0.5, 0.5):
            time.sleep(pause)
            os.kill(pool.pids[0], number)
        [pid] = pool.pids
        data = dump_bundle(bundle("Torch.add.0", (torch.ones(2), 1), {}, torch.ones(2) + 1))
        pool.submit([Task(1, BytesSource(data), (0, 0, 0))])
        answers: list[Any] = []
        end = time.monotonic() + 60
        while not answers and time.monotonic() < end:
            answers = pool.collect(0.1)
            os.kill(pid, number)
        assert [item.finding.verdict for item in answers] == ["pass"]
        assert pool.pids == [pid]
    finally:
        pool.close()


def test_workers_end_with_their_parent() -> None:
    pool = WorkerPool(["cpu"], JudgeOptions())
    [pid] = pool.pids
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_pool_asks_for_small_batches_first() -> None:
    """What a worker holds is what a stop has to wait for."""
    pool = WorkerPool(["cpu", "cpu"], JudgeOptions())
    try:
        assert 2 <= pool.room <= 40
        start = time.monotonic()
        pool.collect(0.01)
        assert time.monotonic() - start < 1
    finally:
        pool.close()

"""A leftover spool is judged by readers that are killed at random moments: rows equal calls, memory and cost stay flat."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from batch_spools import add_call, fill
from processes import ROOT, environment

from spool import open_spool
from spool_reader.events import Notice
from spool_reader.watch import reprocess


def benchmark(*words: object, timeout: float) -> list[dict[str, Any]]:
    """What `benchmarks/batch.py` found, one object a size. The seed of its moments is printed."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    command = [sys.executable, str(ROOT / "benchmarks" / "batch.py"), "--json", "--seed", str(seed), *map(str, words)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("workers", [0, 2])
def test_readers_killed_at_random_moments_leave_one_row_a_call(workers: int) -> None:
    words = ("--bundles", 600, "--ranks", 7, "--steps", 3, "--kills", 5, "--", "--workers", workers)
    [found] = benchmark(*words, timeout=250)
    assert found["killed"] >= 1
    assert found["rows"] == found["calls"] == 600
    assert found["left"] == 0


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed; `make ray` installs it")
def test_the_same_on_a_ray_cluster() -> None:
    words = ("--ray", "--bundles", 600, "--ranks", 7, "--steps", 3, "--kills", 4, "--", "--workers", 2)
    [found] = benchmark(*words, timeout=280)
    assert found["killed"] >= 1
    assert found["rows"] == found["calls"] == 600
    assert found["left"] == 0


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_hundred_thousand_bundles_cost_no_more_each_than_a_thousand() -> None:
    found = benchmark("--bundles", 10_000, 100_000, "--ranks", 64, "--steps", 20, "--kills", 8, timeout=2900)
    assert [size["rows"] for size in found] == [10_000, 100_000]
    assert all(size["left"] == 0 and size["killed"] >= 1 for size in found)
    assert found[1]["peak_mib"] < 1.2 * found[0]["peak_mib"]


def test_what_a_dead_reader_had_in_hand_is_waited_for(tmp_path: Path) -> None:
    """Its claims come back within a bounded time, and a batch is not over before."""
    fill(tmp_path / "spool", [add_call(0, 0, seq) for seq in range(6)])
    code = (
        "import os, sys\nfrom spool import open_spool\n"
        "spool = open_spool(sys.argv[1])\nclaims = [spool.claim() for _ in range(4)]\nos._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "spool")], env=environment(), check=False)
    with open_spool(tmp_path / "spool") as opened:
        assert (opened.stats().ready, opened.stats().claimed) == (2, 4)
    assert reprocess(tmp_path / "spool", out=tmp_path / "out", workers=0).rows == 6


def test_what_a_living_reader_has_in_hand_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spool_reader.run._TAKE_BACK_SECONDS", 0.0)
    fill(tmp_path / "spool", [add_call(0, 0, seq) for seq in range(3)])
    notices: list[str] = []
    with open_spool(tmp_path / "spool") as other:
        claim = other.claim()
        summary = reprocess(
            tmp_path / "spool",
            out=tmp_path / "out",
            workers=0,
            stale_after=1.0,
            on_event=lambda event: notices.append(event.text) if isinstance(event, Notice) else None,
        )
        assert summary.rows == 2
        assert notices == ["1 bundles are in the hands of other readers, which live: theirs to judge"]
        assert claim is not None
        assert claim.done()


def test_what_a_living_reader_gives_back_is_judged(tmp_path: Path) -> None:
    fill(tmp_path / "spool", [add_call(0, 0, seq) for seq in range(3)])
    with open_spool(tmp_path / "spool") as other:
        claim = other.claim()
        assert claim is not None

        def give_back() -> None:
            while sum(path.read_bytes().count(b"\n") for path in tmp_path.glob("out/*.jsonl")) < 2:
                time.sleep(0.01)
            claim.release()

        thread = threading.Thread(target=give_back, daemon=True)
        thread.start()
        assert reprocess(tmp_path / "spool", out=tmp_path / "out", workers=0).rows == 3
        thread.join()

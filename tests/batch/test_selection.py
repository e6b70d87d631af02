"""Batch judging of a part of a spool, of saved failures, and the look before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from batch_spools import add_call, fill
from click.testing import CliRunner, Result
from processes import left_in, rows_of

from cli import main
from spool import ConfigError, open_spool
from spool_reader.events import Notice, Progress
from spool_reader.watch import reprocess, watch

TYPES = {0: torch.float32, 1: torch.float16, 2: torch.bfloat16}
CALLS = [
    (rank, step, seq, f"{'Tensor' if seq % 2 else 'Torch'}.{'mul' if seq == 3 else 'add'}.{seq}", TYPES[seq % 3])
    for rank in range(3)
    for step in range(2)
    for seq in range(4)
]

SELECTIONS: dict[str, tuple[list[str], Any]] = {
    "everything": ([], lambda rank, step, seq, api, dtype: True),
    "rank": (["--rank", "0,2"], lambda rank, step, seq, api, dtype: rank in (0, 2)),
    "step": (["--step", "1-3"], lambda rank, step, seq, api, dtype: step == 1),
    "api": (["--api", "mul"], lambda rank, step, seq, api, dtype: seq == 3),
    "api with its type": (["--api", "Tensor.add"], lambda rank, step, seq, api, dtype: seq == 1),
    "api with its number": (["--api", "Torch.add.2,mul"], lambda rank, step, seq, api, dtype: seq in (2, 3)),
    "dtype": (["--dtype", "float16,bfloat16"], lambda rank, step, seq, api, dtype: dtype is not torch.float32),
    "all four": (
        ["--rank", "1", "--step", "0", "--api", "add", "--dtype", "float32"],
        lambda rank, step, seq, api, dtype: (rank, step, seq) == (1, 0, 0),
    ),
    "nothing": (["--step", "77"], lambda rank, step, seq, api, dtype: False),
}


def run(*words: Any) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    fill(tmp_path / "spool", [add_call(r, t, q, api=api, dtype=dtype) for r, t, q, api, dtype in CALLS])
    return tmp_path / "spool"


@pytest.mark.parametrize("name", SELECTIONS)
def test_what_is_selected_is_judged_and_the_rest_stays(name: str, spool: Path, tmp_path: Path) -> None:
    words, meant = SELECTIONS[name]
    selected = sorted((rank, step, seq) for rank, step, seq, api, dtype in CALLS if meant(rank, step, seq, api, dtype))
    before = left_in(spool)
    look = run("reprocess", spool, "--dry-run", "--json", *words)
    assert left_in(spool) == before
    counted = json.loads(look.stdout)
    assert (counted["selected"], counted["ready"]) == (len(selected), len(CALLS))
    assert sum(counted["operators"].values()) == len(selected)
    assert look.exit_code == (0 if selected else 5)

    done = run("reprocess", spool, "--out", tmp_path / "out", "--workers", "0", "--device", "cpu", *words)
    assert done.exit_code == (0 if selected else 5), done.output
    assert sorted((row["rank"], row["step"], row["seq"]) for row in rows_of(tmp_path / "out")) == selected
    assert len(left_in(spool)) == len(CALLS) - len(selected)


def test_the_rest_can_be_judged_into_the_same_results(spool: Path, tmp_path: Path) -> None:
    for words in (["--api", "mul"], ["--dtype", "bfloat16"], []):
        assert run("reprocess", spool, "-o", tmp_path / "out", "--workers", "0", *words).exit_code == 0
    assert len(rows_of(tmp_path / "out")) == len(CALLS)
    assert left_in(spool) == []


WRONG = {
    "dtype": (["--dtype", "bfloat61"], 'did you mean "bfloat16"'),
    "step": (["--step", "3-1"], "no list of steps"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_selection_is_named(name: str, spool: Path, tmp_path: Path) -> None:
    words, text = WRONG[name]
    for more in (["--dry-run"], ["-o", tmp_path / "out"]):
        result = run("reprocess", spool, *words, *more)
        assert result.exit_code == 2
        assert text in result.output
    assert len(left_in(spool)) == len(CALLS)


def test_a_reader_that_follows_takes_no_part_of_a_spool(spool: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="white_list"):
        watch(spool, out=tmp_path / "out", steps=(1,))


def test_progress_tells_the_time_left(spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spool_reader.run._PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr("spool_reader.run._COUNTING_SHARE", 0.0)
    monkeypatch.setattr("spool_reader.pool.LARGEST_BATCH", 4)
    for name, words in (("part", {"ranks": (0, 1), "steps": (0,)}), ("rest", {})):
        told: list[float | None] = []
        reprocess(
            spool,
            out=tmp_path / name,
            workers=0,
            on_event=lambda event, told=told: told.append(event.seconds_left) if isinstance(event, Progress) else None,
            **words,
        )
        known = [seconds for seconds in told if seconds is not None]
        assert known
        assert known[-1] == 0.0
        assert all(seconds >= 0 for seconds in known)


def test_saved_failures_are_judged_again_and_kept(tmp_path: Path) -> None:
    fill(tmp_path / "spool", [add_call(rank, 0, seq, off=seq % 2) for rank in range(2) for seq in range(4)])
    saved = tmp_path / "saved"
    assert (
        run("reprocess", tmp_path / "spool", "-o", tmp_path / "a", "--workers", "0", "--save-errors", saved).exit_code
        == 1
    )
    kept = left_in(saved)
    assert len(kept) == 4
    for workers in ("0", "1"):
        again = tmp_path / f"again{workers}"
        assert run("reprocess", saved, "-o", again, "--workers", workers).exit_code == 1
        wrong = {(row["rank"], row["seq"]) for row in rows_of(again)}
        assert wrong == {(0, 1), (0, 3), (1, 1), (1, 3)}
        assert {row["verdict"] for row in rows_of(again)} == {"error"}
    assert left_in(saved) == kept
    assert run("reprocess", saved, "-o", again, "--workers", "0").exit_code == 1
    assert len(rows_of(again)) == 4, "what has its row is not judged again"
    picked = run("reprocess", saved, "-o", tmp_path / "picked", "--workers", "0", "--rank", "1", "--api", "Torch.add.3")
    assert [(row["rank"], row["seq"]) for row in rows_of(tmp_path / "picked")] == [(1, 3)], picked.output


def test_a_saved_file_that_cannot_be_used_is_named_and_the_rest_judged(tmp_path: Path) -> None:
    fill(tmp_path / "spool", [add_call(0, 0, seq, off=1.0) for seq in range(2)])
    reprocess(tmp_path / "spool", out=tmp_path / "a", workers=0, save_errors=tmp_path / "saved")
    (tmp_path / "saved" / "broken.safetensors").write_bytes(b"no bundle")
    notices: list[str] = []
    summary = reprocess(
        tmp_path / "saved",
        out=tmp_path / "b",
        workers=0,
        on_event=lambda event: notices.append(event.text) if isinstance(event, Notice) else None,
    )
    assert (summary.rows, summary.unjudged, summary.exit_code) == (2, 1, 1)
    assert any("broken.safetensors cannot be judged and stays where it is" in text for text in notices)
    assert len(left_in(tmp_path / "saved")) == 3


def test_a_saved_call_that_kills_its_worker_is_tried_three_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "modules"
    module.mkdir()
    (module / "batch_poison.py").write_text(
        "import os\nfrom fused_ops import register\n\n"
        '@register("npu_ends_it(Tensor x, Tensor y) -> Tensor", source="test")\n'
        "def ends_it(precision, x, y):\n    os._exit(7)\n"
    )
    saved = tmp_path / "saved"
    fill(tmp_path / "spool", [add_call(0, 0, 0, api="NPU.npu_ends_it.0"), add_call(0, 0, 1, off=1.0)])
    saved.mkdir()
    for path in sorted((tmp_path / "spool").rglob("*.safetensors")):
        path.rename(saved / path.name)
    monkeypatch.syspath_prepend(module)
    summary = reprocess(saved, out=tmp_path / "out", workers=1, device="cpu", imports=("batch_poison",))
    assert [entry["api"] for entry in summary.quarantined] == ["NPU.npu_ends_it.0"]
    assert [row["seq"] for row in rows_of(tmp_path / "out")] == [1]
    assert len(left_in(saved)) == 2


def test_a_training_cannot_write_into_saved_failures(tmp_path: Path) -> None:
    fill(tmp_path / "spool", [add_call(0, 0, 0, off=1.0)])
    reprocess(tmp_path / "spool", out=tmp_path / "a", workers=0, save_errors=tmp_path / "saved")
    with open_spool(tmp_path / "saved") as opened:
        assert opened.stats().ready == 0, "it is no spool: its files are not where bundles of a spool are"

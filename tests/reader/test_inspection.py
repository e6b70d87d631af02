"""Looking at bundles and spools without taking anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import left_in

from spool import BundleError, dump_bundle
from spool_reader.explain import bundle_lines, row_lines
from spool_reader.inspection import inspect_file, replay_files, status


@pytest.fixture
def kept(tmp_path: Path, bundle: Any) -> Path:
    x = torch.tensor([1.0, 3.0])
    made = bundle("Tensor.add_.4", (x, 2), {"alpha": 1}, x + 2, {"args[0]": x + 2}, seq=9, step=3)
    path = tmp_path / "any name.safetensors"
    path.write_bytes(dump_bundle(made))
    return path


def test_inspect_shows_what_a_bundle_holds_by_place(kept: Path) -> None:
    shown = inspect_file(kept)
    assert (shown["api"], shown["step"], shown["seq"], shown["phase"]) == ("Tensor.add_.4", 3, 9, "forward")
    assert shown["values"]["args[0]"] == "float32[2] min 1 max 3 mean 2"
    assert shown["values"]["args[1]"] == "2"
    assert shown["values"]["kwargs.alpha"] == "1"
    assert shown["values"]["result"] == "float32[2] min 3 max 5 mean 4"
    assert shown["values"]["after.args[0]"] == "float32[2] min 3 max 5 mean 4"
    json.dumps(shown, allow_nan=False)


def test_replay_judges_and_deletes_nothing(kept: Path) -> None:
    [row] = replay_files([kept], device="cpu")
    assert row["verdict"] == "pass"
    assert row["bundle"] == str(kept)
    assert kept.exists()


def test_a_file_that_is_no_bundle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "hello.safetensors"
    path.write_bytes(b"hello")
    with pytest.raises(BundleError, match=r"hello\.safetensors"):
        inspect_file(path)
    with pytest.raises(BundleError, match=r"hello\.safetensors"):
        list(replay_files([path], device="cpu"))
    with pytest.raises(BundleError, match=r"missing\.safetensors: No such file"):
        inspect_file(tmp_path / "missing.safetensors")


def test_status_counts_and_takes_nothing(tmp_path: Path, training: Any) -> None:
    writer = training()
    writer.call()
    writer.call(step=1)
    shown = status(tmp_path / "spool")
    assert (shown["ready"], shown["claimed"], shown["quarantined"]) == (2, 0, 0)
    assert shown["ready_by_rank"] == {0: 2}
    assert shown["sessions"][0]["state"] == "open"
    assert len(left_in(tmp_path / "spool")) == 2
    assert not (tmp_path / "spool" / "claimed").exists()
    writer.close()


def test_a_backward_call_is_shown_with_the_call_that_it_belongs_to() -> None:
    found = {
        "path": "x", "api": "Aten.mm.0", "phase": "backward", "rank": 0, "step": 0, "seq": 1, "session": "s1", "format": 1,
        "nbytes": 0, "origin": "Functional.linear.4", "context": {}, "producer": {}, "values": {},
    }  # fmt: skip
    assert "  of the backward of Functional.linear.4" in list(bundle_lines(found))
    row = {**found, "verdict": "pass", "outputs": []}
    assert "  of the backward of Functional.linear.4" in list(row_lines(row))

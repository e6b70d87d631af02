"""Bad input at the command line: a clear message, the exit code of the design, no traceback, nothing lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import left_in, rows_of

from spool import Bundle, bundle_name, dump_bundle


def bundle_bytes(api: str = "Torch.add.0", *, seq: int = 0, **changes: Any) -> bytes:
    """A good bundle of `1 + 1`, or one with some header fields changed."""
    one = torch.ones(3)
    fields: dict[str, Any] = {
        "session": "s1",
        "rank": 0,
        "step": 0,
        "seq": seq,
        "api": api,
        "phase": "forward",
        "args": (one, one),
        "kwargs": {},
        "result": one + one,
        "context": {},
        "producer": {},
        "time": 0.0,
    }
    return dump_bundle(Bundle.build(**{**fields, **changes}))


def place(spool: Path, name: str, data: bytes) -> Path:
    folder = spool / "rank0" / "step0"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    return path


def future_format(data: bytes) -> bytes:
    """The same file, its header claiming format 9."""
    return data.replace(b'\\"format\\": 1', b'\\"format\\": 9').replace(b'\\"format\\":1', b'\\"format\\":9')


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "no bundle": lambda data: b"hello, world",
    "empty": lambda data: b"",
    "truncated": lambda data: data[:-5],
    "zeroed data": lambda data: data[:-12] + bytes(12),
    "zeroed file": lambda data: bytes(len(data)),
    "wrong version": future_format,
}


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_a_broken_bundle_is_quarantined_and_its_neighbours_are_judged(kind: str, tmp_path: Path, cli: Any) -> None:
    spool, out = tmp_path / "spool", tmp_path / "out"
    good = bundle_bytes()
    bad = BROKEN[kind](good)
    assert bad != good
    place(spool, bundle_name(0, "Torch.add.0"), good)
    place(spool, bundle_name(1, "Torch.add.1"), bad)
    place(spool, bundle_name(2, "Torch.add.2"), bundle_bytes("Torch.add.2", seq=2))
    run = cli("reprocess", spool, "--out", out, "--workers", 1)
    assert "Traceback" not in run.stderr
    assert sorted(row["seq"] for row in rows_of(out)) == [0, 2]
    kept = list((spool / "quarantine").rglob("*.safetensors"))
    assert [path.read_bytes() for path in kept] == [bad], "quarantine holds the very bytes that came"
    reasons = [json.loads(path.read_text()) for path in (spool / "quarantine").rglob("*.json")]
    assert len(reasons) == 1
    assert "quarantine" in run.stderr + run.stdout


FORBIDDEN = [
    "Torch.load.0",
    "Torch.hub.load.0",
    "Tensor.__reduce_ex__.0",
    "Torch.os.system.0",
    "Functional.__class__.0",
]


@pytest.mark.parametrize("api", FORBIDDEN)
def test_a_call_outside_the_allow_list_is_a_skip_row(api: str, tmp_path: Path, cli: Any) -> None:
    spool, out = tmp_path / "spool", tmp_path / "out"
    place(spool, bundle_name(0, api), bundle_bytes(api))
    run = cli("reprocess", spool, "--out", out, "--workers", 1)
    [row] = rows_of(out)
    assert row["verdict"] == "skip"
    assert row["message"]
    assert "Traceback" not in run.stderr
    assert left_in(spool) == []


USAGE: dict[str, tuple[list[str], int, str]] = {
    "watch without a spool": (["watch"], 2, "SPOOL"),
    "watch a missing folder": (["watch", "{tmp}/missing"], 3, "missing"),
    "watch a file": (["watch", "{tmp}/file.json"], 3, "file.json"),
    "reprocess a missing folder": (["reprocess", "{tmp}/missing"], 3, "missing"),
    "status of a missing folder": (["status", "{tmp}/missing"], 3, "missing"),
    "inspect a missing file": (["inspect", "{tmp}/missing.safetensors"], 3, "missing.safetensors"),
    "inspect no bundle": (["inspect", "{tmp}/file.json"], 3, "file.json"),
    "replay no bundle": (["replay", "{tmp}/file.json"], 3, "file.json"),
    "unknown command": (["wacth", "{tmp}"], 2, "wacth"),
    "unknown option": (["watch", "{tmp}", "--devcie", "cpu"], 2, "devcie"),
    "unknown device": (["reprocess", "{tmp}", "--device", "tpu"], 2, "tpu"),
    "unknown profile": (["reprocess", "{tmp}", "--profile", "lenient"], 2, "lenient"),
    "negative workers": (["reprocess", "{tmp}", "--workers", "-1"], 2, "workers"),
    "bad rank list": (["reprocess", "{tmp}", "--rank", "zero"], 2, "zero"),
    "missing config": (["run-ut", "-config", "{tmp}/none.json"], 2, "none.json"),
    "config is no JSON": (["run-ut", "-config", "{tmp}/notjson.json"], 2, "notjson.json"),
    "misspelt key": (["run-ut", "-config", "{tmp}/misspelt.json"], 2, "nfs_path"),
    "wrong type": (["run-ut", "-config", "{tmp}/wrongtype.json"], 2, "rank_list"),
    "training-side file": (["run-ut", "-config", "{tmp}/npu.json"], 2, "task"),
}

FILES: dict[str, Any] = {
    "file.json": {},
    "misspelt.json": {"task": "run_ut", "run_ut": {"is_online": True, "nfs_pth": "/tmp", "rank_list": [0]}},
    "wrongtype.json": {"task": "run_ut", "run_ut": {"is_online": True, "nfs_path": "/tmp", "rank_list": "0"}},
    "npu.json": {"task": "tensor", "dump_path": "./d", "tensor": {"online_run_ut": True, "nfs_path": "/tmp"}},
}


@pytest.mark.parametrize("case", sorted(USAGE))
def test_usage_errors(case: str, tmp_path: Path, cli: Any) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "notjson.json").write_text("{task: run_ut", encoding="utf-8")
    words, code, named = USAGE[case]
    run = cli(*[word.replace("{tmp}", str(tmp_path)) for word in words])
    assert run.returncode == code, run.stderr
    assert named in run.stderr
    assert "Traceback" not in run.stderr


def test_nothing_to_check_is_an_end_of_its_own(tmp_path: Path, cli: Any) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    run = cli("reprocess", spool, "--out", tmp_path / "out", "--workers", 1)
    assert run.returncode == 5, run.stderr

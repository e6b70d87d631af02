"""The main job over every transport: two ranks train, one reader judges, each call has one row and nothing is left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import environment, free_port, key_of, left_in, rows_of

TRAINING = """
import sys, torch
from torch.overrides import TorchFunctionMode
from spool_check import PrecisionDebugger

class Device(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 1.01 if func is torch.nn.functional.gelu else result

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
with Device(), PrecisionDebugger(sys.argv[1]) as debugger:
    for step in range(3):
        model(torch.randn(8, 16)).square().mean()
        debugger.step()
"""

TRANSPORTS = ("directory", "plain TCP", "TLS")


def configs(transport: str, folder: Path) -> tuple[Path, Path]:
    """The pair of configuration files for a transport, as the ecosystem writes them."""
    where: dict[str, Any] = {"nfs_path": "", "host": "127.0.0.1", "port": free_port(), "tls_path": ""}
    if transport == "directory":
        (folder / "spool").mkdir()
        where = {"nfs_path": str(folder / "spool"), "host": "", "port": -1, "tls_path": ""}
    if transport == "TLS":
        where["tls_path"] = str(folder / "certificates")
    npu = {"task": "tensor", "dump_path": "./d", "tensor": {"online_run_ut": True, **where}}
    gpu = {"task": "run_ut", "run_ut": {"is_online": True, "rank_list": [0, 1], **where}}
    for name, value in (("npu.json", npu), ("gpu.json", gpu)):
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return folder / "npu.json", folder / "gpu.json"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_ranks_over(transport: str, tmp_path: Path, cli: Any, start_cli: Any) -> None:
    if transport == "TLS":
        pytest.importorskip("cryptography", reason="certificates are made with it")
        assert cli("certs", tmp_path / "certificates").returncode == 0
    npu, gpu = configs(transport, tmp_path)
    landing = tmp_path / ("spool" if transport == "directory" else "landed")
    more = [] if transport == "directory" else ["--spool-dir", landing]
    reader = start_cli("run-ut", "-config", gpu, "--out", tmp_path / "out", "--workers", 1, *more)
    (tmp_path / "training.py").write_text(TRAINING, encoding="utf-8")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "training.py"), str(npu)],
            env={**environment(), "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    output, talk = reader.communicate(timeout=120)
    rows = rows_of(tmp_path / "out")
    assert reader.returncode == 1, output + talk
    assert len({key_of(row) for row in rows}) == len(rows)
    assert {row["rank"] for row in rows} == {0, 1}
    wrong = {row["api"].rpartition(".")[0] for row in rows if row["verdict"] == "error"}
    assert wrong == {"Functional.gelu"}, output
    captured = [json.loads(path.read_text())["counts"]["captured"] for path in landing.glob("rank*/session-*.json")]
    assert len(captured) == 2
    assert sum(captured) == len(rows)
    assert left_in(landing) == []

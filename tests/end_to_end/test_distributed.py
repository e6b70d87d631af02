"""Data-parallel training on two ranks: the same weights as without the tool, every rank's calls under its own name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import environment, free_port, left_in, rows_of

TRAINING = """
import contextlib, hashlib, sys, torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from spool_check import PrecisionDebugger

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(16, 16), nn.Linear(16, 4), nn.LayerNorm(16)
    def forward(self, x):
        return self.second(checkpoint(lambda h: F.gelu(self.first(h)), self.norm(x), use_reentrant=False))

model = DistributedDataParallel(Model(), bucket_cap_mb=0.001)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(1 + dist.get_rank())
tool = PrecisionDebugger(spool=sys.argv[1]) if len(sys.argv) > 1 else contextlib.nullcontext()
with tool as debugger:
    for step in range(2):
        x, y = torch.randn(8, 16, generator=data), torch.randn(8, 4, generator=data)
        F.mse_loss(model(x), y).backward()
        total = torch.zeros(1)
        dist.all_reduce(total)
        optimizer.step()
        optimizer.zero_grad()
        if debugger is not None:
            debugger.step()
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())
dist.destroy_process_group()
"""


def train(folder: Path, *words: Any) -> list[str]:
    """Run two ranks to their end; what each printed."""
    path = folder / "training.py"
    path.write_text(TRAINING, encoding="utf-8")
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(path), *map(str, words)],
            env={**environment(), **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    ends = [rank.communicate(timeout=120) for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), [stderr for _, stderr in ends]
    return [stdout for stdout, _ in ends]


@pytest.mark.skipif(sys.platform != "linux", reason="gloo is tested on Linux only")
def test_two_ranks_train_as_without_the_tool(tmp_path: Path, cli: Any) -> None:
    spool, out = tmp_path / "spool", tmp_path / "out"
    off, on = train(tmp_path), train(tmp_path, spool)
    assert on == off
    assert off[0] == off[1]
    judged = cli("reprocess", spool, "--out", out, "--workers", 1)
    rows = rows_of(out)
    assert judged.returncode == 0, judged.stderr
    assert {row["verdict"] for row in rows} <= {"pass", "skip"}
    by_rank = [{(row["step"], row["seq"]): row for row in rows if row["rank"] == rank} for rank in range(2)]
    assert by_rank[0].keys() == by_rank[1].keys()
    assert all(by_rank[1][key]["api"] == row["api"] for key, row in by_rank[0].items())
    found = {(row["api"], row["origin"]) for row in rows if row["phase"] == "backward"}
    assert ("Aten.gelu_backward.0", "Functional.gelu.0") in found
    assert ("Aten.native_layer_norm_backward.0", "Functional.layer_norm.0") in found
    assert left_in(spool) == []

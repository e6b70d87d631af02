"""Runs inside the peer's own environment: two steps of a small training, dumped by its PrecisionDebugger (task tensor, L1).

Usage: python peer_training.py DUMP_FOLDER
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
import torch  # noqa: E402
from msprobe.pytorch import PrecisionDebugger  # noqa: E402

F = torch.nn.functional


def train(debugger: PrecisionDebugger) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    for _ in range(2):
        debugger.start()
        y = F.layer_norm(model(torch.randn(2, 4)), (3,), eps=1e-3)
        z = y.clone()
        z.add_(1.0)
        z = torch.cat([z, z], dim=0)
        z[0] = 2.0
        torch.topk(z, 2)
        total = torch.sum(z, dtype=torch.float64)
        half = z.to(torch.bfloat16) * 2
        torch.matmul(half, half.t())
        torch.einsum("ij,kj->ik", z, z)
        torch.mul(z.detach(), 2, out=torch.empty(4, 3))
        pair = torch.complex(z, z)
        pair * pair
        z.masked_fill(z > 0, float("inf"))
        F.pad(z, (1, 1))
        (y.sum() + total).backward()
        debugger.stop()
        debugger.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    config = folder.with_suffix(".json")
    tensor = {"scope": [], "list": [], "data_mode": ["all"]}
    wanted = {"task": "tensor", "dump_path": str(folder), "rank": [], "step": [], "level": "L1", "tensor": tensor}
    config.write_text(json.dumps(wanted))
    train(PrecisionDebugger(config_path=str(config)))

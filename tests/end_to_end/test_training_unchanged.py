"""Training with the tool on and off: losses, gradients and weights bit-equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PROGRAM = """
import sys, contextlib, hashlib, torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from spool_check import PrecisionDebugger

torch.manual_seed(0)
torch.set_num_threads(1)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.conv = nn.Sequential(nn.Conv1d(16, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU(inplace=True))
        self.head = nn.Linear(16, 32)
    def forward(self, ids):
        x = checkpoint(self.layer, self.embed(ids), use_reentrant=False)
        return self.head(self.conv(x.transpose(1, 2)).transpose(1, 2))

model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tool = PrecisionDebugger(spool=sys.argv[1]) if len(sys.argv) > 1 else contextlib.nullcontext()
digest = hashlib.sha256()
with tool as debugger:
    for step in range(3):
        ids = torch.randint(0, 32, (4, 9))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(ids[:, :-1])
            loss = nn.functional.cross_entropy(out.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        digest.update(loss.detach().numpy().tobytes())
        for p in model.parameters():
            digest.update(p.grad.numpy().tobytes())
        optimizer.step()
        optimizer.zero_grad()
        if debugger is not None:
            debugger.step()
for value in [*model.parameters(), *model.buffers()]:
    digest.update(value.detach().numpy().tobytes())
print(digest.hexdigest())
"""


def test_losses_gradients_and_weights_are_bit_equal(tmp_path: Path, script: Any) -> None:
    spool = tmp_path / "spool"
    off, on = script(PROGRAM), script(PROGRAM, spool)
    assert off.returncode == on.returncode == 0, off.stderr + on.stderr
    assert list(spool.rglob("*.safetensors")), "nothing was captured"
    assert on.stdout == off.stdout

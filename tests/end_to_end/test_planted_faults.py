"""Faults planted below the dispatcher of a simulated device: found, the first one named first, and nobody else blamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from processes import left_in, rows_of

# The device stands where an accelerator's kernels would, below both modes of the debugger.
TRAINING = """
import sys, torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from spool_check import PrecisionDebugger
aten = torch.ops.aten
torch.manual_seed(0)
torch.set_num_threads(1)
last = []

def stale(func, *args):
    # The kernel of the second call hands out the buffer of the first.
    last.append(func(*args))
    return last[-1] if len(last) == 1 else last[0].clone()

def narrow_sum(func, *args):
    # The product is added up in bfloat16, sixteen terms at a time.
    *bias, a, b = args
    parts = [aten.mm.default(a[:, k:k + 16], b[k:k + 16]) for k in range(0, b.shape[0], 16)]
    total = parts[0].bfloat16()
    for part in parts[1:]:
        total = total + part.bfloat16()
    return total.to(a.dtype) + (bias[0] if bias else 0)

FAULTS = {
    "none": {},
    "wrong epsilon": {aten.native_layer_norm.default: lambda f, x, s, w, b, e: f(x, s, w, b, 1e-3)},
    "stale buffer": {aten.gelu.default: stale},
    "bf16 accumulation": {aten.mm.default: narrow_sum, aten.addmm.default: narrow_sum},
    "dropped bias": {aten.addmm.default: lambda f, bias, a, b: aten.mm.default(a, b)},
    "ignored mask": {aten.masked_fill.Scalar: lambda f, x, mask, value: x.clone()},
    "scaled gradient": {aten.gelu_backward.default: lambda f, *a, **k: f(*a, **k) * 1.01},
    "short softmax gradient": {
        aten._softmax_backward_data.default: lambda f, g, y, dim, dtype: y * (g - (g * y)[..., 1:].sum(dim, keepdim=True))
    },
}

class Device(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kernel = FAULTS[sys.argv[2]].get(func)
        return func(*args, **(kwargs or {})) if kernel is None else kernel(func, *args, **(kwargs or {}))

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96, bias=False), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32, bias=False)
    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        scores = q @ k.transpose(-1, -2) / 32 ** 0.5
        mask = torch.ones(8, 8, dtype=torch.bool).triu(1)
        x = x + self.out(scores.masked_fill(mask, float("-inf")).softmax(-1) @ v)
        return x + self.down(F.gelu(self.up(x)))

model = nn.Sequential(nn.Embedding(16, 32), Block(), Block(), nn.Linear(32, 16, bias=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
ids = torch.randint(0, 16, (3, 9))
with Device(), PrecisionDebugger(spool=sys.argv[1]) as debugger:
    for _ in range(2):
        F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        debugger.step()
"""

# fault → operators that may be blamed, each of them at least once; the first error in execution order
EXPECTED: dict[str, tuple[set[str], str | None]] = {
    "none": (set(), None),
    "wrong epsilon": ({"Functional.layer_norm"}, "Functional.layer_norm.0"),
    "stale buffer": ({"Functional.gelu"}, "Functional.gelu.1"),
    "bf16 accumulation": ({"Functional.linear", "Aten.mm"}, "Functional.linear.0"),
    "dropped bias": ({"Functional.linear"}, "Functional.linear.1"),
    "ignored mask": ({"Tensor.masked_fill", "Aten.masked_fill"}, "Tensor.masked_fill.0"),
    "scaled gradient": ({"Aten.gelu_backward"}, "Aten.gelu_backward.0"),
    "short softmax gradient": ({"Aten._softmax_backward_data"}, "Aten._softmax_backward_data.0"),
}


@pytest.mark.parametrize("fault", sorted(EXPECTED))
def test_a_planted_fault_is_found_and_nobody_else_is_blamed(fault: str, tmp_path: Path, cli: Any, script: Any) -> None:
    spool, out = tmp_path / "spool", tmp_path / "out"
    run = script(TRAINING, spool, fault)
    assert run.returncode == 0, run.stderr
    judged = cli("reprocess", spool, "--out", out, "--workers", 1)
    rows = sorted(rows_of(out), key=lambda row: (row["step"], row["seq"]))
    errors = [row for row in rows if row["verdict"] == "error"]
    blamed, first = EXPECTED[fault]
    assert {row["api"].rpartition(".")[0] for row in errors} == blamed
    assert (errors[0]["api"] if errors else None) == first
    assert judged.returncode == (1 if blamed else 0), judged.stderr
    for row in errors:
        if row["api"].startswith(("Aten.gelu_backward", "Aten._softmax")):
            assert row["origin"].startswith(("Functional.gelu", "Tensor.softmax"))
    assert left_in(spool) == []

"""Optimiser steps, plain, foreach and fused: recorded before and after, replayed, and nothing changed by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from processes import left_in, rows_of

TRAINING = """
import sys, torch, warnings
from torch import nn
from spool_check import PrecisionDebugger
warnings.filterwarnings("ignore")
torch.set_num_threads(1)
O = torch.optim
MAKE = {
    f"{kind.__name__} {how}": lambda p, kind=kind, how=how, options=options: kind(p, **options, **{how: True})
    for kind, options in (
        (O.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
        (O.Adam, dict(lr=1e-2, amsgrad=True)),
        (O.AdamW, dict(lr=1e-2, maximize=True)),
        (O.Adagrad, dict(lr=1e-2)),
        (O.RMSprop, dict(lr=1e-2, centered=True, momentum=0.9)),
        (O.NAdam, dict(lr=1e-2)),
        (O.RAdam, dict(lr=1e-2)),
        (O.Adadelta, dict(lr=1.0)),
        (O.Adamax, dict(lr=1e-2)),
        (O.Rprop, dict(lr=1e-2)),
        (O.ASGD, dict(lr=1e-2)),
    )
    for how in ("foreach", "fused", "differentiable")
    if how == "foreach" or (how == "fused" and kind in (O.SGD, O.Adam, O.AdamW, O.Adagrad))
}

def train(debugger, name):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)).to(torch.float32)
    optimizer = MAKE[name](model.parameters())
    x = torch.randn(5, 6)
    for _ in range(3):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if debugger is not None:
        debugger.step()
    return [p.detach().clone() for p in model.parameters()]

off = {name: train(None, name) for name in MAKE}
with PrecisionDebugger(spool=sys.argv[1]) as debugger:
    on = {name: train(debugger, name) for name in MAKE}
for name in MAKE:
    assert all(torch.equal(a, b) for a, b in zip(off[name], on[name])), name
"""


def test_optimiser_steps_are_recorded_and_pass(tmp_path: Path, cli: Any, script: Any) -> None:
    spool, out = tmp_path / "spool", tmp_path / "out"
    run = script(TRAINING, spool)
    assert run.returncode == 0, run.stderr
    judged = cli("reprocess", spool, "--out", out, "--workers", 1)
    rows = rows_of(out)
    bad = [(row["api"], row["verdict"], row["message"]) for row in rows if row["verdict"] not in ("pass", "skip")]
    assert not bad, bad
    assert judged.returncode == 0, judged.stderr
    passed = {row["api"].rpartition(".")[0] for row in rows if row["verdict"] == "pass"}
    assert {"Torch._fused_adamw_", "Torch._fused_adam_", "Torch._fused_sgd_", "Torch._fused_adagrad_"} <= passed
    assert {"Torch._foreach_addcdiv_", "Torch._foreach_lerp_", "Torch._foreach_mul_"} <= passed
    assert left_in(spool) == []

"""What one rank of a training writes in a step, and what it costs to judge that: the figures that docs/scaling.md plans with.

The model is a stack of decoder blocks in bfloat16, recorded with the debugger into a spool and judged from there; counts
and bytes of a block do not depend on how many there are. Judging is measured in one process with one CPU thread.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spool import SpoolOptions, open_spool
from spool_check import PrecisionDebugger
from spool_reader.watch import reprocess

MIB = 2**20


class Block(nn.Module):
    """A decoder block: attention and a gated feed-forward layer."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(hidden), nn.LayerNorm(hidden)])
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.gate, self.up = nn.Linear(hidden, 4 * hidden), nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        parts = (
            self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        )
        q, k, v = parts.unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, hidden)
        x = x + self.out(mixed)
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


# What a user may leave out, by keywords of the debugger.
CHOICES: Mapping[str, Mapping[str, Any]] = {
    "everything": {},
    "forward only": {"backward": False},
    "matrix products and attention": {
        "backward": False,
        "white_list": ["linear", "matmul", "scaled_dot_product_attention"],
    },
    "norms and activations": {"backward": False, "white_list": ["layer_norm", "silu", "softmax", "gelu"]},
}


def step(model: nn.Module, x: Tensor) -> None:
    """One forward and backward."""
    model(x).float().square().mean().backward()
    model.zero_grad()


def recorded(spool: Path, layers: int, args: argparse.Namespace, choice: Mapping[str, Any]) -> tuple[int, int]:
    """Bundles and bytes of one step of so many blocks."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(args.hidden, args.heads) for _ in range(layers))).to(torch.bfloat16)
    x = torch.randn(1, args.length, args.hidden, dtype=torch.bfloat16)
    spool.mkdir()
    with PrecisionDebugger(spool=str(spool), **choice) as debugger:
        step(model, x)
        debugger.step()
    found = [path.stat().st_size for path in spool.rglob("*.safetensors")]
    return len(found), sum(found)


def judged(spool: Path, device: str) -> float:
    """Seconds to judge what is in a spool."""
    start = time.perf_counter()
    reprocess(spool, out=spool.parent / "out", workers=0, device=device)
    return time.perf_counter() - start


def moved(spool: Path) -> float:
    """Seconds to claim, load with its digest, and delete everything: what any judging costs at least."""
    start = time.perf_counter()
    with open_spool(spool, options=SpoolOptions()) as opened:
        while (claim := opened.claim()) is not None:
            claim.load()
            claim.done()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--device", default="cpu", help="of the judging: cpu, cuda, npu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"one block: hidden {args.hidden}, {args.heads} heads, {args.length} tokens, bfloat16; one step")
    print("| recorded | bundles | MiB | load ms a bundle | load MiB/s | judge ms a bundle |\n|---|---|---|---|---|---|")
    for name, choice in CHOICES.items():
        folder = Path(tempfile.mkdtemp(prefix="spool-check-scaling-"))
        try:
            # The difference of three blocks and one is two blocks, without what stands around them.
            (few, small), (many, large) = (recorded(folder / f"{n}", n, args, choice) for n in (1, 3))
            count, size = (many - few) / 2, (large - small) / 2
            load, judge = moved(folder / "1"), judged(folder / "3", args.device)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(
            f"| {name} | {count:.0f} | {size / MIB:.0f} | {1000 * load / few:.1f} | {small / MIB / load:.0f} "
            f"| {1000 * judge / many:.0f} |", flush=True
        )  # fmt: skip


if __name__ == "__main__":
    main()

"""The training of `spool-check demo`: a small GPT on a simulated device in which one operator is subtly wrong.

`python -m spool_check.demo_training SPOOL --fault layer_norm` is an ordinary training script; only `SimulatedDevice`
is special. It stands where an accelerator's driver would: below the capture, so that the debugger records what the
"device" returned, right or wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from spool_writer import PrecisionDebugger


def _layer_norm_wrong_eps(
    func: Callable[..., Tensor],
    x: Tensor,
    shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The kernel uses 1e-3 where the caller asked for 1e-5: about 5e-4 relative on unit variance."""
    return func(x, shape, weight, bias, 1e-3)


def _gelu_wrong_form(func: Callable[..., Tensor], x: Tensor, *, approximate: str = "none") -> Tensor:
    """The kernel computes x·σ(1.702·x), the "fast" form, where the exact one was asked for."""
    y: Tensor = x * torch.sigmoid(1.702 * x)
    return y


def _softmax_short_sum(
    func: Callable[..., Tensor], x: Tensor, dim: int, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Tensor:
    """The kernel drops the last column from the denominator."""
    y: Tensor = func(x, dim, dtype=dtype)
    return y / y.narrow(dim, 0, y.size(dim) - 1).sum(dim, keepdim=True).clamp_min(1e-6)


FAULTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "layer_norm": (F.layer_norm, _layer_norm_wrong_eps),
    "gelu": (F.gelu, _gelu_wrong_form),
    "softmax": (F.softmax, _softmax_short_sum),
}


class SimulatedDevice(TorchFunctionMode):
    """A device whose kernel for one operator is wrong; `fault=None` is a healthy one."""

    def __init__(self, fault: str | None) -> None:
        super().__init__()
        self._target: Callable[..., Any] | None = None
        self._kernel: Callable[..., Any] | None = None
        if fault:
            self._target, self._kernel = FAULTS[fault]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self._kernel is not None and func is self._target:
            return self._kernel(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class Block(nn.Module):
    """One pre-norm transformer block with causal attention written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.matmul(q, k.transpose(-2, -1)) * (q.size(-1) ** -0.5)
        weights = F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        mixed = torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.proj(mixed)
        out: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return out


class TinyGPT(nn.Module):
    """A GPT of two blocks over a vocabulary of 256."""

    def __init__(
        self, vocabulary: int = 256, width: int = 64, heads: int = 4, depth: int = 2, length: int = 32
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.size(1), device=ids.device))
        for block in self.blocks:
            x = block(x, self.mask)
        out: Tensor = self.head(self.norm(x))
        return out


def train(spool: str, fault: str | None, steps: int) -> None:
    """Train for a few steps under bf16 autocast with AdamW, the debugger on."""
    torch.manual_seed(0)
    model = TinyGPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with SimulatedDevice(fault), PrecisionDebugger(spool=spool) as debugger:
        for step in range(steps):
            ids = torch.randint(0, 256, (4, 33))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(ids[:, :-1])
                loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), ids[:, 1:].reshape(-1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"training: step {step} loss {loss.item():.4f}", flush=True)
            debugger.step()


def main() -> None:
    """Run the training from the command line."""
    parser = argparse.ArgumentParser(prog="python -m spool_check.demo_training", description=__doc__)
    parser.add_argument("spool")
    parser.add_argument("--fault", choices=[*FAULTS, "none"], default="layer_norm")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    train(options.spool, None if options.fault == "none" else options.fault, options.steps)


if __name__ == "__main__":
    main()

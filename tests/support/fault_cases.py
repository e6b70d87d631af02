"""APIs of every standard with their runs, and the faults that a verdict must find in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Tensors = tuple[torch.Tensor, ...]
Run = Callable[..., Any]

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
SCALES = (1e-6, 1e-3, 1.0, 1e3, 1e6)
ROWS, COLUMNS = 48, 64


@dataclass(frozen=True)
class Api:
    """One API: its name, its run, its inputs, and a run that adds up in another order where it sums."""

    name: str
    run: Run
    inputs: str = "x"
    reordered: Run | None = None


def make_inputs(kind: str, dtype: torch.dtype, scale: float, seed: int = 0) -> Tensors:
    """Inputs of a kind: letters x, y (matrices), p (positive), w (weights), b (batch), v (vector), i (indices)."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    made: list[torch.Tensor] = []
    for letter in kind:
        if letter in "xy":
            made.append((normal(ROWS, COLUMNS) * scale).to(dtype))
        elif letter == "p":
            made.append(((normal(ROWS, COLUMNS).abs() + 0.1) * scale).to(dtype))
        elif letter == "w":
            made.append((normal(COLUMNS, ROWS)).to(dtype))
        elif letter == "b":
            made.append((normal(2, ROWS, COLUMNS) * scale).to(dtype))
        elif letter == "c":
            made.append((normal(2, COLUMNS, ROWS)).to(dtype))
        elif letter == "v":
            made.append((normal(COLUMNS)).to(dtype))
        elif letter == "a":
            made.append((normal(ROWS, ROWS) * scale).to(dtype))
        elif letter == "d":
            made.append((normal(2, ROWS, ROWS) * scale).to(dtype))
        elif letter == "i":
            made.append(torch.randint(0, COLUMNS, (ROWS,), generator=generator))
    return tuple(made)


def _flip_k(run: Run) -> Run:
    """A product with the summed axis reversed in both factors."""

    def flipped(x: torch.Tensor, w: torch.Tensor) -> Any:
        return run(x.flip(-1), w.flip(-2 if w.dim() > 1 else -1))

    return flipped


def _flip_last(run: Run) -> Run:
    """A reduction over the last axis, which is reversed."""

    def flipped(x: torch.Tensor, *more: Any) -> Any:
        return run(x.flip(-1), *more)

    return flipped


def _flip_back(run: Run) -> Run:
    """A normalisation over the last axis, reversed and turned back."""

    def flipped(x: torch.Tensor, *more: Any) -> Any:
        return run(x.flip(-1), *more).flip(-1)

    return flipped


def _sum(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)


def _conv2d(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x.reshape(1, 4, 24, 32), w.reshape(-1)[: 8 * 4 * 9].reshape(8, 4, 3, 3))


def _conv2d_reordered(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    kernel = w.reshape(-1)[: 8 * 4 * 9].reshape(8, 4, 3, 3)
    return F.conv2d(x.reshape(1, 4, 24, 32).flip(1), kernel.flip(1))


def _conv1d(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.conv1d(x.reshape(1, 16, 192), w.reshape(-1)[: 8 * 16 * 5].reshape(8, 16, 5))


def _conv1d_reordered(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    kernel = w.reshape(-1)[: 8 * 16 * 5].reshape(8, 16, 5)
    return F.conv1d(x.reshape(1, 16, 192).flip(1), kernel.flip(1))


def _attention(x: torch.Tensor) -> torch.Tensor:
    heads = x.reshape(2, 4, ROWS, 16)
    return F.scaled_dot_product_attention(heads, heads.flip(0), heads.flip(1))


def _norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (COLUMNS,))


def _cross_entropy(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, i, reduction="none")


APIS: tuple[Api, ...] = (
    # absolute threshold
    Api("Torch.add", torch.add, "xy"),
    Api("Torch.sub", torch.sub, "xy"),
    Api("Torch.mul", torch.mul, "xw", None),
    Api("Torch.div", torch.div, "xp"),
    Api("Torch.square", torch.square),
    Api("Torch.reciprocal", torch.reciprocal, "p"),
    Api("Torch.rsqrt", torch.rsqrt, "p"),
    Api("Functional.leaky_relu", F.leaky_relu),
    Api("Tensor.__rsub__", lambda x: 1 - x),
    # binary consistency
    Api("Functional.relu", F.relu),
    Api("Torch.neg", torch.neg),
    Api("Torch.maximum", torch.maximum, "xy"),
    Api("Torch.floor", torch.floor),
    Api("Torch.cat", lambda x, y: torch.cat([x, y]), "xy"),
    Api("Torch.clamp", lambda x: torch.clamp(x, min=0.0)),
    Api("Torch.sort", lambda x: torch.sort(x, dim=-1, stable=True)),
    Api("Torch.topk", lambda x: torch.topk(x, 5)),
    Api("Torch.argmax", lambda x: torch.argmax(x, -1)),
    Api("Tensor.transpose", lambda x: x.transpose(0, 1)),
    # ULP
    Api("Torch.matmul", torch.matmul, "xw", _flip_k(torch.matmul)),
    Api("Torch.mm", torch.mm, "xw", _flip_k(torch.mm)),
    Api("Torch.bmm", torch.bmm, "bc", _flip_k(torch.bmm)),
    Api("Torch.mv", torch.mv, "xv", _flip_k(torch.mv)),
    Api("Functional.linear", lambda x, w: F.linear(x, w.T), "xw", _flip_k(lambda x, w: F.linear(x, w.T))),
    Api("Torch.addmm", torch.addmm, "axw", lambda a, x, w: torch.addmm(a, x.flip(-1), w.flip(-2))),
    Api("Torch.baddbmm", torch.baddbmm, "dbc", lambda d, b, c: torch.baddbmm(d, b.flip(-1), c.flip(-2))),
    # thousandth
    Api("Functional.conv1d", _conv1d, "xw", _conv1d_reordered),
    Api("Functional.conv2d", _conv2d, "xw", _conv2d_reordered),
    # benchmark
    Api("Torch.exp", torch.exp),
    Api("Torch.tanh", torch.tanh),
    Api("Torch.sigmoid", torch.sigmoid),
    Api("Torch.sqrt", torch.sqrt, "p"),
    Api("Torch.sin", torch.sin),
    Api("Torch.log", torch.log, "p"),
    Api("Functional.gelu", F.gelu),
    Api("Functional.silu", F.silu),
    Api("Functional.softplus", F.softplus),
    Api("Functional.softmax", lambda x: F.softmax(x, -1), "x", _flip_back(lambda x: F.softmax(x, -1))),
    Api("Functional.log_softmax", lambda x: F.log_softmax(x, -1), "x", _flip_back(lambda x: F.log_softmax(x, -1))),
    Api("Functional.layer_norm", _norm, "x", _flip_back(_norm)),
    Api("Torch.sum", _sum, "x", _flip_last(_sum)),
    Api("Tensor.sum", torch.sum, "x", _flip_last(torch.sum)),
    Api("Torch.mean", lambda x: x.mean(-1), "x", _flip_last(lambda x: x.mean(-1))),
    Api("Torch.var", lambda x: x.var(-1), "x", _flip_last(lambda x: x.var(-1))),
    Api("Torch.linalg.norm", lambda x: torch.linalg.norm(x, dim=-1), "x"),
    Api("Torch.logsumexp", lambda x: torch.logsumexp(x, -1), "x", _flip_last(lambda x: torch.logsumexp(x, -1))),
    Api("Torch.cumsum", lambda x: torch.cumsum(x, -1)),
    Api("Functional.mse_loss", F.mse_loss, "xy", lambda x, y: F.mse_loss(x.flip(-1), y.flip(-1))),
    Api("Functional.cross_entropy", _cross_entropy, "xi"),
    Api("Functional.group_norm", lambda x: F.group_norm(x, 4)),
    Api("Functional.scaled_dot_product_attention", _attention, "b"),
    Api("Functional.normalize", F.normalize, "x", _flip_back(F.normalize)),
)


@dataclass(frozen=True)
class Runs:
    """The runs of one API on the same inputs: native, in float32 and rounded, reordered, and golden."""

    api: Api
    dtype: torch.dtype
    inputs: Tensors
    native: Tensors
    clean: dict[str, Tensors]
    golden: Tensors


def runs_of(api: Api, dtype: torch.dtype, scale: float, seed: int = 0) -> Runs:
    """All runs of an API; where the CPU has no kernel for the dtype, native is the run in float32, rounded."""
    inputs = make_inputs(api.inputs, dtype, scale, seed)
    if api.name == "Torch.mul":
        inputs = inputs[0], inputs[1].T.contiguous()
    single = rounded(_outputs(api.run, inputs, torch.float32), dtype)
    try:
        native = _outputs(api.run, inputs, None)
    except RuntimeError:
        native = single
    clean = {"float32, rounded": single}
    if api.reordered is not None:
        clean["another order"] = rounded(_outputs(api.reordered, inputs, torch.float32), dtype)
    golden = _outputs(api.run, inputs, torch.float64 if dtype is torch.float32 else torch.float32)
    return Runs(api, dtype, inputs, native, clean, golden)


def _outputs(run: Run, inputs: Tensors, raised: torch.dtype | None) -> Tensors:
    given = [t.to(raised) if raised is not None and t.is_floating_point() else t for t in inputs]
    result = run(*given)
    return tuple(result) if isinstance(result, tuple) else (result,)


def rounded(outputs: Tensors, dtype: torch.dtype) -> Tensors:
    """Float outputs in a dtype."""
    return tuple(output.to(dtype) if output.is_floating_point() else output for output in outputs)


def patterns(output: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Faults that have a size, as errors of size one; their place is fixed, their unit the output's magnitude."""
    values = output.double().contiguous()
    unit = values.abs().mean().clamp_min(1e-300)
    middle = int(values.abs().reshape(-1).argsort()[values.numel() // 2])
    one = torch.zeros_like(values)
    one.view(-1)[middle] = unit
    yield "one wrong element", one
    block = torch.zeros_like(values)
    block.view(-1)[: max(1, values.numel() // 8)] = unit
    yield "wrong block", block
    yield "scale", values.clone()
    yield "bias", torch.full_like(values, float(unit))
    noise = torch.randn(values.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    yield "noise", noise * unit


def whole_faults(output: torch.Tensor, stale: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Faults without a size: what the device gives instead."""
    flat = output.reshape(-1)
    half = flat.numel() // 2
    yield "sign flip", -output
    if half:
        swapped = torch.cat([flat[half : 2 * half], flat[:half], flat[2 * half :]])
        yield "swapped halves", swapped.reshape(output.shape)
    yield "stale output", stale
    yield "zeros", torch.zeros_like(output)
    yield (
        "truncated mantissa",
        torch.sign(output) * torch.exp2(torch.floor(torch.log2(output.abs().double()))).to(output.dtype),
    )

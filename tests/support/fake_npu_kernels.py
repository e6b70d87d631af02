"""Kernels of the simulated `npu` operators, written by other formulas than the references in fused_ops.

Gradients come from autograd through the kernel itself, attention from torch's own operator, selections from Python
loops: a mistake in a reference shows as a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# A kernel runs below autograd, where PyTorch records no graph; another thread has none of the caller's state.
_ABOVE_AUTOGRAD = ThreadPoolExecutor(max_workers=1)


def gradients(forward: Callable[..., Tensor], dy: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Gradients of the inputs by autograd in float32, each in its input's dtype."""

    def run() -> tuple[Tensor, ...]:
        leaves = [item.detach().float().requires_grad_() for item in inputs]
        return torch.autograd.grad(forward(*leaves), leaves, dy.float())

    found = _ABOVE_AUTOGRAD.submit(run).result()
    return tuple(grad.to(item.dtype) for grad, item in zip(found, inputs, strict=True))


def fast_gelu(x: Tensor) -> Tensor:
    wide = x.float()
    size = wide.abs()
    return (wide * torch.exp(0.851 * (wide - size)) / (1 + torch.exp(-1.702 * size))).to(x.dtype)


def fast_gelu_backward(grad: Tensor, x: Tensor) -> Tensor:
    return gradients(fast_gelu, grad, x)[0]


def mish(x: Tensor) -> Tensor:
    return F.mish(x.float()).to(x.dtype)


def mish_backward(grad: Tensor, x: Tensor) -> Tensor:
    return gradients(mish, grad, x)[0]


def swiglu(x: Tensor, dim: int = -1) -> Tensor:
    gate, linear = x.float().chunk(2, dim)
    return (F.silu(gate) * linear).to(x.dtype)


def swiglu_backward(grad: Tensor, x: Tensor, dim: int = -1) -> Tensor:
    return gradients(lambda item: swiglu(item, dim), grad, x)[0]


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    shape = x.shape[: x.dim() - gamma.dim()]
    flat = x.float().reshape(*shape, -1)
    root = (flat.square().sum(-1) / flat.shape[-1] + epsilon).sqrt()
    y = (flat / root.unsqueeze(-1)).reshape(x.shape) * gamma.float()
    return y.to(x.dtype), (1 / root).reshape(*shape, *([1] * gamma.dim()))


def rms_norm_backward(dy: Tensor, x: Tensor, gamma: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    # The ε that the forward used is what makes rstd from x.
    mean = x.float().reshape(*x.shape[: x.dim() - gamma.dim()], -1).square().mean(-1)
    epsilon = float((rstd.reshape(mean.shape).double().pow(-2) - mean.double()).median())
    dx, dgamma = gradients(lambda a, b: rms_norm(a, b, epsilon)[0], dy, x, gamma.float())
    return dx, dgamma


def layer_norm_eval(
    x: Tensor, shape: list[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    wide = [None if item is None else item.float() for item in (weight, bias)]
    return F.layer_norm(x.float(), shape, wide[0], wide[1], eps).to(x.dtype)


def group_norm_silu(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, group: int, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    wide = [None if item is None else item.float() for item in (weight, bias)]
    y = F.silu(F.group_norm(x.float(), group, wide[0], wide[1], eps))
    variance, mean = torch.var_mean(x.float().reshape(x.shape[0], group, -1), -1, correction=0)
    return y.to(x.dtype), mean.to(x.dtype), (variance + eps).pow(-0.5).to(x.dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)


def linear_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return gradients(lambda a, b: F.linear(a, b), grad, x, weight)


def rotary_mul(x: Tensor, r1: Tensor, r2: Tensor, mode: str = "half", rotate: Tensor | None = None) -> Tensor:
    """Every pair of elements as one complex number that is turned; the angles may differ within a pair."""
    wide, cos, sin = x.float(), r1.to(x.dtype).float(), r2.to(x.dtype).float()
    size = x.shape[-1]
    pairs = torch.arange(size)
    partner = (pairs + size // 2) % size if mode == "half" else pairs ^ 1
    sign = torch.where(pairs < partner, -1.0, 1.0)
    return (wide * cos + wide[..., partner] * sign * sin).to(x.dtype)


def rotary_mul_backward(
    grad: Tensor, x: Tensor, r1: Tensor, r2: Tensor, mode: str = "half"
) -> tuple[Tensor, Tensor, Tensor]:
    dx, dr1, dr2 = gradients(lambda a, b, c: rotary_mul(a, b, c, mode), grad, x, r1, r2)
    return dx, dr1.to(x.dtype), dr2.to(x.dtype)


def scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False) -> Tensor:
    scores = torch.where(mask, torch.tensor(-10000.0), x.float() * scale)
    return torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True)).to(x.dtype)


def scaled_masked_softmax_backward(
    y_grad: Tensor, y: Tensor, mask: Tensor, scale: float, fixed_triu_mask: bool
) -> Tensor:
    p = y.float()
    jacobian = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
    dx = scale * torch.einsum("...ij,...j->...i", jacobian, y_grad.float())
    return torch.where(mask, torch.tensor(0.0), dx).to(y.dtype)


def confusion_transpose(x: Tensor, perm: list[int], shape: list[int], transpose_first: bool) -> Tensor:
    moved = x.permute(perm).reshape(shape) if transpose_first else x.reshape(shape).permute(perm)
    return moved.clone(memory_format=torch.contiguous_format)


def confusion_transpose_backward(grad: Tensor, perm: list[int], shape: list[int], transpose_first: bool) -> Tensor:
    source = torch.arange(grad.numel()).reshape(shape)
    forward_shape = grad.shape if not transpose_first else [grad.shape[perm.index(axis)] for axis in range(len(perm))]
    place = confusion_transpose(source, perm, list(forward_shape), not transpose_first)
    flat = torch.empty(grad.numel(), dtype=grad.dtype)
    flat[place.reshape(-1)] = grad.reshape(-1)
    return flat.reshape(shape)


def sort_v2(x: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    # The kernel is one for half precision, whatever the tensor holds.
    return torch.sort(x, dim, descending).values.half().to(x.dtype)


def moe_gating_top_k_softmax(x: Tensor, finished: Tensor | None = None, k: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    experts = x.shape[-1]
    leading = x.shape[:-1]
    probabilities = F.softmax(x.float(), -1).to(x.dtype if x.dtype == torch.float16 else torch.float32)
    rows = probabilities.reshape(-1, experts).tolist()
    order = [sorted(range(experts), key=lambda e, row=row: (-row[e], e))[:k] for row in rows]
    y = torch.tensor([[row[e] for e in chosen] for row, chosen in zip(rows, order, strict=True)])
    done = [False] * len(rows) if finished is None else finished.reshape(-1).tolist()
    index = [[experts] * k if skip else chosen for skip, chosen in zip(done, order, strict=True)]
    row_index = [[r + j * len(rows) for j in range(k)] for r in range(len(rows))]
    shape = (*leading, k)
    as_int = [torch.tensor(item, dtype=torch.int32).reshape(shape) for item in (index, row_index)]
    return y.reshape(shape).to(x.dtype), as_int[0], as_int[1]


def _scalar(value: Any) -> float:
    return float(value)


def apply_adam(rates: tuple[Any, ...], grad: Tensor, nesterov: bool, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    beta1_power, beta2_power, lr, beta1, beta2, epsilon = map(_scalar, rates)
    var, m, v = (item.float() for item in state)
    g = grad.float()
    m = torch.lerp(g, m, beta1)
    v = v * beta2 + g.square() * (1 - beta2)
    step = beta1 * m + (1 - beta1) * g if nesterov else m
    var = var - lr * (1 - beta2_power) ** 0.5 / (1 - beta1_power) * step / (v.sqrt() + epsilon)
    return tuple(new.to(old.dtype) for new, old in zip((var, m, v), state, strict=True))


def apply_adam_w(
    rates: tuple[Any, ...],
    grad: Tensor,
    max_grad_norm: Tensor | None,
    amsgrad: bool,
    maximize: bool,
    state: tuple[Tensor, ...],
) -> tuple[Tensor, ...]:
    beta1_power, beta2_power, lr, weight_decay, beta1, beta2, epsilon = map(_scalar, rates)
    var, m, v = (item.float() for item in state)
    g = -grad.float() if maximize else grad.float()
    var = var - var * (lr * weight_decay)
    m = torch.lerp(g, m, beta1)
    v = torch.lerp(g.square(), v, beta2)
    largest = torch.maximum(v, max_grad_norm.float()) if amsgrad and max_grad_norm is not None else v
    denominator = largest.sqrt() / (1 - beta2_power * beta2) ** 0.5 + epsilon
    var = var - lr / (1 - beta1_power * beta1) * m / denominator
    return tuple(new.to(old.dtype) for new, old in zip((var, m, v), state, strict=True))


def _heads(x: Tensor, layout: str, size: int) -> Tensor:
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.transpose(1, 2)
    x = x if layout == "BSH" else x.transpose(0, 1)
    return x.unflatten(2, (-1, size)).transpose(1, 2)


def _visible(options: dict[str, Any], rows: int, columns: int) -> Tensor | None:
    mask = options.get("atten_mask")
    mode = options.get("sparse_mode", 0)
    if mask is None:
        return None
    if mode in {2, 3}:
        return torch.ones(rows, columns, dtype=torch.bool).tril(0 if mode == 2 else columns - rows)
    return ~mask.bool()


def attention(q: Tensor, k: Tensor, v: Tensor, heads: int, layout: str, options: dict[str, Any]) -> tuple[Tensor, ...]:
    """Output, maximum and sum for the layouts BNSD, BSND, BSH and SBH, with full masks or the causal modes 2 and 3."""
    layout = layout.upper()
    size = q.shape[-1] if layout in {"BNSD", "BSND"} else q.shape[2] // heads
    value_size = size if layout in {"BSH", "SBH"} else v.shape[-1]
    query, key = _heads(q.float(), layout, size), _heads(k.float(), layout, size)
    value = _heads(v.float(), layout, value_size)
    group = heads // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scale = options.get("scale", options.get("scale_value", 1.0))
    visible = _visible(options, query.shape[2], key.shape[2])
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=visible, scale=scale)
    scores = torch.einsum("bnsd,bntd->bnst", query * scale, key)
    if visible is not None:
        scores = torch.where(visible, scores, torch.tensor(-torch.inf))
    maximum = scores.max(-1).values
    total = torch.exp(torch.logsumexp(scores, -1) - maximum)
    if layout == "BSND":
        out = out.transpose(1, 2)
    elif layout != "BNSD":
        out = out.transpose(1, 2).flatten(2)
        out = out if layout == "BSH" else out.transpose(0, 1)
    wide = [item.detach().unsqueeze(-1).repeat(1, 1, 1, 8) for item in (maximum, total)]
    return out.to(q.dtype).contiguous(), wide[0], wide[1]

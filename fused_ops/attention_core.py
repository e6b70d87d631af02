"""Fused attention on one segment, forward and backward, in blocks of rows so that no full score matrix is held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .attention_call import AttentionCall
from .attention_layouts import Segment
from .attention_scores import MASKED, empty_rows, kept, masked, position_bias, scores
from .precision import Precision

_CELLS_PER_BLOCK = 1 << 24


def row_blocks(segment: Segment) -> Iterator[tuple[int, int]]:
    """Start and stop of row blocks of bounded size."""
    batch, heads, rows, _ = segment.query.shape
    step = max(1, _CELLS_PER_BLOCK // max(1, batch * heads * segment.columns))
    for start in range(0, rows, step):
        yield start, min(rows, start + step)


def attend(run: Precision, call: AttentionCall, segment: Segment) -> tuple[Tensor, Tensor, Tensor]:
    """Output [B, N, Sq, Dv], row maximum and row sum [B, N, Sq], in the computing dtype."""
    blocks = [_attend_rows(run, call, segment, start, stop) for start, stop in row_blocks(segment)]
    if not blocks:
        q, v = run.up(segment.query), run.up(segment.value)
        return q.new_zeros(*q.shape[:3], v.shape[3]), q.new_zeros(q.shape[:3]), q.new_zeros(q.shape[:3])
    if len(blocks) == 1:
        return blocks[0]
    return tuple(torch.cat([block[part] for block in blocks], 2) for part in range(3))  # type: ignore[return-value]


def _attend_rows(
    run: Precision, call: AttentionCall, segment: Segment, start: int, stop: int
) -> tuple[Tensor, Tensor, Tensor]:
    value = scores(run, call, segment, call.pse, start, stop)
    weights, maximum, total = _softmax(run, call, value)
    keep = kept(call, segment, start, stop)
    if keep is not None:
        weights = weights * keep / call.keep_prob
    out = _times_value(run, weights, segment) / total.unsqueeze(-1)
    empty = _zero_rows(call, segment, start, stop, maximum)
    if empty is not None:
        out = out.masked_fill(empty.unsqueeze(-1), 0.0)
        maximum, total = maximum.masked_fill(empty, MASKED), total.masked_fill(empty, -MASKED)
    return out, maximum, total


def _softmax(run: Precision, call: AttentionCall, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights before they are divided by their sum, row maximum and that sum; a sink is one more score in both."""
    maximum = value.amax(-1) if value.shape[-1] else value.new_full(value.shape[:-1], MASKED)
    if call.sink is None:
        weights = torch.exp(value - maximum.unsqueeze(-1))
        return weights, maximum, weights.sum(-1)
    sink = run.up(call.sink).reshape(1, -1, 1)
    maximum = torch.maximum(maximum, sink)
    weights = torch.exp(value - maximum.unsqueeze(-1))
    return weights, maximum, weights.sum(-1) + torch.exp(sink - maximum)


def _times_value(run: Precision, weights: Tensor, segment: Segment) -> Tensor:
    batch, heads, rows, columns = weights.shape
    kv_heads = segment.value.shape[1]
    grouped = weights.reshape(batch, kv_heads, heads // kv_heads * rows, columns)
    return (grouped @ run.up(segment.value)).reshape(batch, heads, rows, segment.value.shape[3])


def _zero_rows(call: AttentionCall, segment: Segment, start: int, stop: int, like: Tensor) -> Tensor | None:
    """Rows whose result is 0, [B, N, rows]."""
    if segment.columns == 0:
        return torch.ones_like(like, dtype=torch.bool)
    found = empty_rows(call, segment, start, stop)
    return None if found is None else found[0].expand(like.shape)


@dataclass
class Gradients:
    """Sums over the row blocks of one segment, as [B, N, S, D]."""

    query: list[Tensor]
    key: Tensor
    value: Tensor
    pse: Tensor | None
    sink: Tensor | None


def attend_backward(
    run: Precision,
    call: AttentionCall,
    segment: Segment,
    dy: Tensor,
    statistics: tuple[Tensor, Tensor] | None,
) -> Gradients:
    """Gradients of query, key, value, pse and sink for the output gradient dy, [B, N, Sq, Dv].

    dV = Pᵀ·dY, dP = dY·Vᵀ, dS = P∘(dP − rowsum(dP∘P)), dQ = scale·dS·K, dK = scale·dSᵀ·Q. P is recomputed from the
    scores, and from the forward's row maximum and sum where the call brings them.
    """
    key, value = run.up(segment.key), run.up(segment.value)
    batch, heads, _, size = segment.query.shape
    kv_heads = key.shape[1]
    pse = run.up(call.pse)
    total = Gradients(
        query=[],
        key=torch.zeros_like(key),
        value=torch.zeros_like(value),
        pse=None if pse is None else torch.zeros_like(pse),
        sink=None if call.sink is None else torch.zeros_like(run.up(call.sink)),
    )
    for start, stop in row_blocks(segment):
        grouped = (batch, kv_heads, heads // kv_heads * (stop - start))
        score = scores(run, call, segment, call.pse, start, stop)
        if statistics is None:
            weights, maximum, norm = _softmax(run, call, score)
        else:
            maximum, norm = (part[:, :, start:stop] for part in statistics)
            weights = torch.exp(score - maximum.unsqueeze(-1))
        weights = weights / norm.unsqueeze(-1)
        empty = _zero_rows(call, segment, start, stop, maximum)
        if empty is not None:
            weights = weights.masked_fill(empty.unsqueeze(-1), 0.0)
        dy_rows = dy[:, :, start:stop].reshape(*grouped, value.shape[3])
        keep = kept(call, segment, start, stop)
        dropped = weights if keep is None else weights * keep / call.keep_prob
        total.value += dropped.reshape(*grouped, segment.columns).mT @ dy_rows
        dweights = (dy_rows @ value.mT).reshape(weights.shape)
        if keep is not None:
            dweights = dweights * keep / call.keep_prob
        row_sum = (dweights * weights).sum(-1, keepdim=True)
        dscore = weights * (dweights - row_sum)
        hidden = masked(call, segment, start, stop)
        if hidden is not None:
            # A masked score was replaced by a constant, so nothing flows back, not even in a fully masked row.
            dscore = dscore.masked_fill(hidden, 0.0)
        dscaled = (dscore * call.scale).reshape(*grouped, segment.columns)
        total.query.append((dscaled @ key).reshape(batch, heads, stop - start, size))
        total.key += dscaled.mT @ run.up(segment.query[:, :, start:stop]).reshape(*grouped, size)
        if total.pse is not None and pse is not None:
            total.pse += _pse_gradient(call, segment, pse, dscore, start, stop)
        if total.sink is not None and call.sink is not None:
            sink_weight = torch.exp(run.up(call.sink).reshape(1, -1, 1) - maximum) / norm
            total.sink -= (sink_weight * row_sum.squeeze(-1)).sum((0, 2))
    return total


def _pse_gradient(call: AttentionCall, segment: Segment, pse: Tensor, dscore: Tensor, start: int, stop: int) -> Tensor:
    """The bias is linear in pse, so autograd of the bias alone sums over whatever it broadcast or shifted."""
    with torch.enable_grad():
        leaf = pse.detach().requires_grad_()
        bias = position_bias(call, segment, leaf, start, stop)
        factor = call.scale if call.pse_type == 1 else 1.0
        (gradient,) = torch.autograd.grad(bias.expand_as(dscore), leaf, dscore.detach() * factor)
    return gradient

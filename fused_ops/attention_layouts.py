"""Layouts of the fused attention family: everything is computed as [B, N, S, D], TND in one segment per sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .attention_call import AttentionCall
from .errors import check

_STATISTIC_WIDTH = 8


@dataclass(frozen=True)
class Segment:
    """One independent problem: tensors of shape [B, N, S, D], and where their rows stand in the whole call."""

    index: int
    query: Tensor
    key: Tensor
    value: Tensor
    q_start: int = 0
    kv_start: int = 0
    # Cells of the dropout mask before this segment, and of a flat pse.
    cells_before: int = 0
    columns_before: int = 0

    @property
    def rows(self) -> int:
        return self.query.shape[2]

    @property
    def columns(self) -> int:
        return self.key.shape[2]


def to_heads(tensor: Tensor, layout: str, heads: int, name: str) -> Tensor:
    """A view of shape [B, N, S, D]; TND becomes [1, N, T, D]."""
    rank = 3 if layout in {"BSH", "SBH", "TND"} else 4
    check(tensor.dim() == rank, name, tensor, f"must have {rank} dimensions in layout {layout}")
    if layout in {"BSH", "SBH"}:
        check(
            heads > 0 and tensor.shape[2] % heads == 0,
            name,
            tensor,
            f"the last dimension must split into {heads} heads",
        )
        split = tensor.reshape(*tensor.shape[:2], heads, tensor.shape[2] // heads)
        return split.permute(0, 2, 1, 3) if layout == "BSH" else split.permute(1, 2, 0, 3)
    if layout == "TND":
        return tensor.transpose(0, 1).unsqueeze(0)
    return tensor if layout == "BNSD" else tensor.transpose(1, 2)


def from_heads(tensor: Tensor, layout: str) -> Tensor:
    """The inverse of `to_heads`, contiguous."""
    if layout == "BSH":
        tensor = tensor.permute(0, 2, 1, 3).flatten(2)
    elif layout == "SBH":
        tensor = tensor.permute(2, 0, 1, 3).flatten(2)
    elif layout == "BSND":
        tensor = tensor.transpose(1, 2)
    elif layout == "TND":
        tensor = tensor.squeeze(0).transpose(0, 1)
    return tensor.contiguous()


def heads_of(call: AttentionCall, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value as [B, N, S, D], checked against each other."""
    q = to_heads(query, call.layout, call.heads, "query")
    check(q.shape[1] == call.heads, "head_num", call.heads, f"must be the query's number of heads, {q.shape[1]}")
    kv_heads = call.heads
    if call.layout in {"BSH", "SBH"}:
        size = q.shape[3]
        check(size > 0 and key.shape[-1] % size == 0, "key", key, f"the last dimension must be a multiple of {size}")
        kv_heads = key.shape[-1] // size
    k = to_heads(key, call.layout, kv_heads, "key")
    v = to_heads(value, call.layout, kv_heads, "value")
    check(k.shape[0] == q.shape[0], "key", key, f"must have the query's batch size {q.shape[0]}")
    check(k.shape[3] == q.shape[3], "key", key, f"must have the query's head size {q.shape[3]}")
    check(v.shape[:3] == k.shape[:3], "value", value, "must have the key's batch size, heads and length")
    divides = k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0
    check(divides, "key", key, f"its {k.shape[1]} heads must divide the query's {q.shape[1]}")
    return q, k, v


def segments(call: AttentionCall, q: Tensor, k: Tensor, v: Tensor) -> Iterator[Segment]:
    """The independent problems of a call: one, or with TND one per sequence that has query rows."""
    if call.layout != "TND":
        yield Segment(0, q, k, v)
        return
    cells = columns = 0
    spans = zip(
        _spans(call.q_ends, q.shape[2], "actual_seq_qlen"),
        _spans(call.kv_ends, k.shape[2], "actual_seq_kvlen"),
        strict=True,
    )
    for index, ((q_start, rows), (kv_start, width)) in enumerate(spans):
        if rows:
            yield Segment(
                index,
                q.narrow(2, q_start, rows),
                k.narrow(2, kv_start, width),
                v.narrow(2, kv_start, width),
                q_start,
                kv_start,
                cells,
                columns,
            )
        cells += call.heads * rows * width
        columns += width


def _spans(ends: Sequence[int], total: int, name: str) -> list[tuple[int, int]]:
    """Start and length of every sequence; trailing zeros are sequences that take no part."""
    used = len(ends)
    while used > 1 and ends[used - 1] == 0:
        used -= 1
    starts = [0, *ends[: used - 1]]
    spans = [(start, end - start) for start, end in zip(starts, ends[:used], strict=True)]
    fits = all(length >= 0 for _, length in spans) and ends[used - 1] <= total
    check(fits, name, tuple(ends), f"must be cumulative ends that do not decrease and stay within T = {total}")
    return spans + [(total, 0)] * (len(ends) - used)


def covered_rows(ends: Sequence[int]) -> int:
    """Rows of T that belong to a sequence."""
    return max(ends, default=0)


def join_rows(pieces: Sequence[Tensor], like: Tensor, length: int) -> Tensor:
    """Pieces of shape [B, N, s, D] along the sequence, zeros behind them up to `length`."""
    parts = list(pieces)
    missing = length - sum(part.shape[2] for part in parts)
    if missing or not parts:
        parts.append(like.new_zeros(like.shape[0], like.shape[1], missing, like.shape[3]))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def statistics_out(call: AttentionCall, pieces: Sequence[Tensor], length: int, like: Tensor) -> Tensor:
    """softmax_max or softmax_sum as the device lays it out: eight equal entries per row.

    Pieces have the shape [B, N, s]. TND gives [T, N, 8]; unless softmax_layout is "TND", the rows of every sequence
    lie there head by head.
    """
    if call.layout != "TND":
        return pieces[0].unsqueeze(-1).expand(*pieces[0].shape, _STATISTIC_WIDTH).contiguous()
    ordered = [piece[0].t() if call.softmax_layout == "TND" else piece[0] for piece in pieces]
    flat = torch.cat([part.reshape(-1) for part in ordered]) if ordered else like.new_zeros(0)
    missing = length * call.heads - flat.numel()
    flat = torch.cat([flat, flat.new_zeros(missing)])
    return flat.reshape(length, call.heads, 1).expand(-1, -1, _STATISTIC_WIDTH).contiguous()


def statistics_in(call: AttentionCall, statistic: Tensor, segment: Segment, name: str) -> Tensor:
    """The rows of one segment, [B, N, s], out of a softmax_max or softmax_sum laid out as by `statistics_out`."""
    batch, heads, rows = segment.query.shape[:3]
    if call.layout != "TND":
        check(
            tuple(statistic.shape[:3]) == (batch, heads, rows),
            name,
            statistic,
            f"must be [{batch}, {heads}, {rows}, 8]",
        )
        return statistic[..., 0]
    check(statistic.dim() == 3 and statistic.shape[1] == heads, name, statistic, f"must be [T, {heads}, 8]")
    flat = statistic[..., 0].reshape(-1).narrow(0, segment.q_start * heads, rows * heads)
    shaped = flat.reshape(rows, heads).t() if call.softmax_layout == "TND" else flat.reshape(heads, rows)
    return shaped.unsqueeze(0)

"""Attention by loops over heads, rows and columns in Python floats: nothing shared with the references under test."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

LOWEST = -3.4028234663852886e38


@dataclass(frozen=True)
class Row:
    """Options of one sequence; the functions take (head, row, column)."""

    scale: float = 1.0
    hidden: Callable[[int, int, int], bool] = lambda n, i, j: False
    bias: Callable[[int, int, int], float] = lambda n, i, j: 0.0
    bias_inside_scale: bool = True
    sink: list[float] | None = None
    kept: Callable[[int, int, int], bool] = lambda n, i, j: True
    keep_prob: float = 1.0
    zero_empty: bool = False


def attention(q: Tensor, k: Tensor, v: Tensor, row: Row) -> tuple[Tensor, Tensor, Tensor]:
    """q [N, Sq, D], k [Nkv, Skv, D], v [Nkv, Skv, Dv] → output, row maxima, row sums."""
    queries, keys, values = q.tolist(), k.tolist(), v.tolist()
    group = len(queries) // len(keys)
    outs, maxima, sums = [], [], []
    for n, head in enumerate(queries):
        outs.append([])
        maxima.append([])
        sums.append([])
        for i, query in enumerate(head):
            out, maximum, total = _one_row(n, i, query, keys[n // group], values[n // group], row)
            outs[-1].append(out)
            maxima[-1].append(maximum)
            sums[-1].append(total)
    return tuple(torch.tensor(item, dtype=torch.float64) for item in (outs, maxima, sums))


def _one_row(n: int, i: int, query: list[float], keys: Any, values: Any, row: Row) -> tuple[list[float], float, float]:
    logits = []
    for j, key in enumerate(keys):
        dot = sum(a * b for a, b in zip(query, key, strict=True))
        if row.bias_inside_scale:
            logit = row.scale * (dot + row.bias(n, i, j))
        else:
            logit = row.scale * dot + row.bias(n, i, j)
        logits.append(LOWEST if row.hidden(n, i, j) else logit)
    size = len(values[0])
    if row.zero_empty and all(row.hidden(n, i, j) for j in range(len(keys))):
        return [0.0] * size, LOWEST, -LOWEST
    extra = [] if row.sink is None else [row.sink[n]]
    maximum = max(logits + extra)
    weights = [math.exp(logit - maximum) for logit in logits]
    total = sum(weights) + sum(math.exp(value - maximum) for value in extra)
    out = [0.0] * size
    for j, weight in enumerate(weights):
        if row.kept(n, i, j):
            for d in range(size):
                out[d] += weight / total / row.keep_prob * values[j][d]
    return out, maximum, total

"""Examples: fused attention."""

from __future__ import annotations

from typing import Any

import torch
from fused_make import F32, FLOAT, I64, Example, Make
from torch import Tensor


def _attention(m: Make, **more: Any) -> dict[str, Any]:
    tensors = {"query": m.normal(2, 4, 3, 8), "key": m.normal(2, 2, 5, 8), "value": m.normal(2, 2, 5, 6)}
    return {**tensors, "head_num": 4, "input_layout": "BNSD", **more}


def _attention_grad(m: Make, **more: Any) -> dict[str, Any]:
    return {**_attention(m), "dy": m.normal(2, 4, 3, 6), "scale_value": 0.3, **more}


def _causal() -> Tensor:
    return torch.ones(2048, 2048, dtype=torch.bool).triu(1)


def _three_heads(m: Make, **more: Any) -> dict[str, Any]:
    """A TND call of version 3: sequences of 2 and 3 query rows, 1 and 4 columns."""
    ends = {"actual_seq_qlen": torch.tensor([2, 5]), "actual_seq_kvlen": torch.tensor([1, 5])}
    tensors = {"query": m.normal(5, 4, 8), "key": m.normal(5, 2, 8), "value": m.normal(5, 2, 6)}
    return {**tensors, "head_num": 4, "input_layout": "TND", **ends, **more}


_STATISTICS = ((2, 4, 3, 8), F32)

EXAMPLES: tuple[Example, ...] = (
    *(
        Example(
            name,
            lambda m: _attention(m, atten_mask=_causal(), scale=0.3, sparse_mode=3, sink=m.normal(4, dtype=F32)),
            (((2, 4, 3, 6), FLOAT), _STATISTICS, _STATISTICS, ((0,), FLOAT), int, int, int),
        )
        for name in ("npu_fusion_attention", "npu_fusion_attention_v2")
    ),
    Example(
        "npu_fusion_attention_v3",
        lambda m: _three_heads(m, scale=0.3),
        (((5, 4, 6), FLOAT), ((5, 4, 8), F32), ((5, 4, 8), F32), ((0,), FLOAT), ((1,), I64), ((1,), I64)),
    ),
    Example(
        "npu_fusion_attention_grad",
        lambda m: _attention_grad(m, pse=m.normal(1, 4, 3, 5), sink=m.normal(4, dtype=F32)),
        (
            ((2, 4, 3, 8), FLOAT),
            ((2, 2, 5, 8), FLOAT),
            ((2, 2, 5, 6), FLOAT),
            ((1, 4, 3, 5), FLOAT),
            ((4,), F32),
        ),
    ),
    Example(
        "npu_fusion_attention_grad_v2",
        lambda m: _attention_grad(m, query_rope=m.normal(2, 4, 3, 2), key_rope=m.normal(2, 2, 5, 2)),
        (
            ((2, 4, 3, 8), FLOAT),
            ((2, 2, 5, 8), FLOAT),
            ((2, 2, 5, 6), FLOAT),
            None,
            ((2, 4, 3, 2), FLOAT),
            ((2, 2, 5, 2), FLOAT),
            ((0,), F32),
        ),
    ),
    Example(
        "npu_fusion_attention_grad_v3",
        lambda m: {**_three_heads(m), "dy": m.normal(5, 4, 6), "scale_value": 0.3},
        (((5, 4, 8), FLOAT), ((5, 2, 8), FLOAT), ((5, 2, 6), FLOAT), None, ((0,), F32)),
    ),
)

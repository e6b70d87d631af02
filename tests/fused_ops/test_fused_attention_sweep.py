"""Random combinations of layout, sizes, groups, masks and options of fused attention, against loops and autograd."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from attention_oracle import Row, attention
from fused_make import Make
from torch import Tensor

import fused_ops

torch.set_num_threads(1)
COMPRESSED = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
FORWARD, BACKWARD = "npu_fusion_attention", "npu_fusion_attention_grad"


class Drawn:
    """One random call: sizes, keywords and what the oracle needs to know."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.m = Make(torch.float64, seed)
        self.batch, self.kv_heads, group = draw.randint(1, 3), draw.randint(1, 2), draw.randint(1, 3)
        self.heads = self.kv_heads * group
        self.sq, self.sk = draw.randint(1, 6), draw.randint(1, 6)
        self.size, self.value_size = draw.randint(1, 5), draw.randint(1, 5)
        self.layout = draw.choice(["BNSD", "BSND", "BSH", "SBH"])
        self.scale = draw.choice([1.0, 0.37])
        self.mode = draw.choice([None, 0, 1, 2, 3, 4, 6])
        self.pre, self.next = draw.randint(0, 4), draw.randint(0, 3)
        self.prefix = [draw.randint(0, self.sk) for _ in range(self.batch)]
        shape = draw.choice([(1, 1), (self.batch, 1), (self.batch, self.heads)])
        self.mask = self.m.flags(*shape, self.sq, self.sk)
        self.inner_precise = draw.choice([0, 2])
        self.pse = self.m.normal(draw.choice([1, self.batch]), self.heads, draw.choice([1, self.sq]), self.sk)
        self.has_pse = draw.random() < 0.5
        self.sink = self.m.normal(self.heads) if draw.random() < 0.3 else None

    def keywords(self) -> dict[str, Any]:
        found: dict[str, Any] = {"inner_precise": self.inner_precise}
        if self.mode is not None:
            found.update(sparse_mode=self.mode, atten_mask=self.mask if self.mode in {0, 1} else COMPRESSED)
        if self.mode == 4:
            found.update(pre_tockens=self.pre, next_tockens=self.next)
        if self.mode == 6:
            found["prefix"] = self.prefix
        if self.has_pse:
            found["pse"] = self.pse
        if self.sink is not None:
            found["sink"] = self.sink
        return found

    def hidden(self, b: int, n: int, i: int, j: int) -> bool:
        shift = self.sk - self.sq
        if self.mode in {0, 1}:
            return bool(self.mask.expand(self.batch, self.heads, self.sq, self.sk)[b, n, i, j])
        if self.mode == 2:
            return j > i
        if self.mode == 3:
            return j > i + shift
        if self.mode == 4:
            return not i + shift - self.pre <= j <= i + shift + self.next
        return self.mode == 6 and j > i + shift and j >= self.prefix[b]

    def row(self, b: int) -> Row:
        pse = self.pse.expand(self.batch, self.heads, self.sq, self.sk)
        return Row(
            scale=self.scale,
            hidden=lambda n, i, j: self.hidden(b, n, i, j),
            bias=(lambda n, i, j: float(pse[b, n, i, j])) if self.has_pse else (lambda n, i, j: 0.0),
            sink=None if self.sink is None else self.sink.tolist(),
            zero_empty=(self.inner_precise == 2 or self.mode in {2, 3, 4, 6}) and self.sink is None,
        )

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        q = self.m.normal(self.batch, self.heads, self.sq, self.size)
        k = self.m.normal(self.batch, self.kv_heads, self.sk, self.size)
        return q, k, self.m.normal(self.batch, self.kv_heads, self.sk, self.value_size)

    def laid_out(self, tensor: Tensor) -> Tensor:
        if self.layout == "BNSD":
            return tensor
        by_row = tensor.transpose(1, 2)
        if self.layout == "BSND":
            return by_row
        flat = by_row.reshape(*by_row.shape[:2], -1)
        return flat if self.layout == "BSH" else flat.transpose(0, 1)


SEEDS = [*range(100), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 1000))]


@pytest.mark.parametrize("seed", SEEDS)
def test_any_call(seed: int) -> None:
    case = Drawn(seed)
    q, k, v = case.tensors()
    keywords = case.keywords()
    given = [case.laid_out(item).clone().requires_grad_() for item in (q, k, v)]
    forward, backward = fused_ops.reference(FORWARD), fused_ops.reference(BACKWARD)
    out, maximum, total, *_ = forward.golden(*given, case.heads, case.layout, scale=case.scale, **keywords)
    expected = [attention(q[b], k[b], v[b], case.row(b)) for b in range(case.batch)]
    torch.testing.assert_close(out.detach(), case.laid_out(torch.stack([item[0] for item in expected])))
    torch.testing.assert_close(maximum[..., 0].detach(), torch.stack([item[1] for item in expected]))
    torch.testing.assert_close(total[..., 0].detach(), torch.stack([item[2] for item in expected]))
    dy = case.m.normal(*out.shape)
    wanted = torch.autograd.grad(out, given, dy)
    statistics = {"softmax_max": maximum.detach(), "softmax_sum": total.detach()}
    found = backward.golden(
        *given, dy, case.heads, case.layout, scale_value=case.scale, attention_in=out, **statistics, **keywords
    )
    for left, right in zip(found[:3], wanted, strict=True):
        torch.testing.assert_close(left.detach(), right, rtol=1e-8, atol=1e-8)

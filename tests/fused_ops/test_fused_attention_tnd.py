"""Layout TND: sequences behind each other, modes 7 and 8, statistics laid out head by head, skipped sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_oracle import Row, attention
from fused_make import Make
from torch import Tensor

import fused_ops

torch.set_num_threads(1)
OP = fused_ops.reference("npu_fusion_attention")
V3 = fused_ops.reference("npu_fusion_attention_v3")
COMPRESSED = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
Q_LENGTHS, KV_LENGTHS = (2, 0, 3, 4), (3, 2, 5, 2)


def ends(lengths: tuple[int, ...]) -> list[int]:
    return torch.tensor(lengths).cumsum(0).tolist()


def tensors(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    m = Make(dtype, seed=2)
    total_q, total_kv = sum(Q_LENGTHS), sum(KV_LENGTHS)
    return m.normal(total_q, 4, 6), m.normal(total_kv, 2, 6), m.normal(total_kv, 2, 4)


def causal(shift: bool) -> Callable[..., bool]:
    return lambda i, j, sq, sk: j > i + (sk - sq if shift else 0)


def band(pre: int, following: int) -> Callable[..., bool]:
    return lambda i, j, sq, sk: not i + sk - sq - pre <= j <= i + sk - sq + following


SQUARE = torch.zeros(5, 6, dtype=torch.bool)
SQUARE[1, 1:3] = True

# name: (keywords, for every sequence whether (row, column, rows, columns) is hidden)
CASES: dict[str, tuple[dict[str, Any], Callable[[int], Callable[..., bool]]]] = {
    "no mask": ({"scale": 0.4}, lambda s: lambda i, j, sq, sk: False),
    "mode 0": ({"scale": 0.4, "atten_mask": SQUARE}, lambda s: lambda i, j, sq, sk: bool(SQUARE[i, j])),
    "mode 2": ({"scale": 0.4, "atten_mask": COMPRESSED, "sparse_mode": 2}, lambda s: causal(False)),
    "mode 3": ({"scale": 0.4, "atten_mask": COMPRESSED, "sparse_mode": 3}, lambda s: causal(True)),
    "mode 4": (
        {"scale": 0.4, "atten_mask": COMPRESSED, "sparse_mode": 4, "pre_tockens": 1, "next_tockens": 1},
        lambda s: band(1, 1),
    ),
    "mode 6": (
        {"scale": 0.4, "atten_mask": COMPRESSED, "sparse_mode": 6, "prefix": [1, 1, 2, 1]},
        lambda s: lambda i, j, sq, sk: j > i + sk - sq and j >= (1, 1, 2, 1)[s],
    ),
    "mode 7": (
        {"scale": 0.4, "atten_mask": COMPRESSED, "sparse_mode": 7, "pre_tockens": 5, "next_tockens": 1},
        lambda s: band(5, 1) if s == 3 else causal(True),
    ),
    "mode 8": (
        {"scale": 0.4, "atten_mask": COMPRESSED, "sparse_mode": 8, "pre_tockens": 5, "next_tockens": -1},
        lambda s: band(5, -1) if s == 0 else causal(False),
    ),
}


@pytest.mark.parametrize("softmax_layout", ["", "TND"])
@pytest.mark.parametrize("name", CASES)
def test_every_sequence_by_itself(name: str, softmax_layout: str) -> None:
    keywords, hidden = CASES[name]
    q, k, v = tensors()
    lists = {"actual_seq_qlen": ends(Q_LENGTHS), "actual_seq_kvlen": ends(KV_LENGTHS)}
    out, maximum, total, *_ = OP.golden(q, k, v, 4, "TND", **lists, **keywords, softmax_layout=softmax_layout)
    assert tuple(out.shape) == (9, 4, 4)
    assert tuple(maximum.shape) == tuple(total.shape) == (9, 4, 8)
    row = column = 0
    for index, (sq, sk) in enumerate(zip(Q_LENGTHS, KV_LENGTHS, strict=True)):
        rows, columns = slice(row, row + sq), slice(column, column + sk)
        row, column = row + sq, column + sk
        if not sq:
            continue
        rule = hidden(index)
        zero = keywords.get("sparse_mode", 0) > 1
        expected = attention(
            q[rows].transpose(0, 1),
            k[columns].transpose(0, 1),
            v[columns].transpose(0, 1),
            Row(scale=0.4, hidden=lambda n, i, j, rule=rule, sq=sq, sk=sk: rule(i, j, sq, sk), zero_empty=zero),
        )
        torch.testing.assert_close(out[rows].transpose(0, 1), expected[0], rtol=1e-9, atol=1e-9)
        for found, wanted in ((maximum, expected[1]), (total, expected[2])):
            block = found[rows, :, 0]
            # By default the rows of a sequence lie head by head in the memory of its block.
            by_head = block.t() if softmax_layout == "TND" else block.reshape(4, sq)
            torch.testing.assert_close(by_head, wanted, rtol=1e-9, atol=1e-9)


def test_version_3_takes_the_ends_as_tensors() -> None:
    q, k, v = tensors()
    lists = {"actual_seq_qlen": ends(Q_LENGTHS), "actual_seq_kvlen": ends(KV_LENGTHS)}
    first = OP.golden(q, k, v, 4, "TND", **lists)
    third = V3.golden(q, k, v, 4, "TND", **{name: torch.tensor(value) for name, value in lists.items()})
    assert len(third) == 6
    assert all(torch.equal(a, b) for a, b in zip(first[:4], third[:4], strict=True))


def test_trailing_zeros_skip_sequences_and_their_rows_are_not_compared() -> None:
    q, k, v = tensors()
    lists = {"actual_seq_qlen": [2, 5, 0, 0], "actual_seq_kvlen": [3, 8, 0, 0]}
    out, *_ = OP.golden(q, k, v, 4, "TND", **lists)
    short = OP.golden(q[:5], k[:8], v[:8], 4, "TND", actual_seq_qlen=[2, 5], actual_seq_kvlen=[3, 8])
    torch.testing.assert_close(out[:5], short[0])
    reasons = OP.uncompared(q, k, v, 4, "TND", **lists)
    assert "5 to 9" in reasons[0]
    assert {0, 1, 2} <= set(reasons)


def test_dropout_bits_run_on_from_sequence_to_sequence() -> None:
    q, k, v = tensors()
    lists = {"actual_seq_qlen": ends(Q_LENGTHS), "actual_seq_kvlen": ends(KV_LENGTHS)}
    cells = 4 * sum(a * b for a, b in zip(Q_LENGTHS, KV_LENGTHS, strict=True))
    bits = torch.rand(cells, generator=torch.Generator().manual_seed(1)) < 0.6
    flat = torch.cat([bits.long(), torch.zeros(-cells % 128, dtype=torch.int64)]).reshape(-1, 8)
    packed = (flat * (1 << torch.arange(8))).sum(1).to(torch.uint8)
    out, *_, numels = OP.golden(q, k, v, 4, "TND", **lists, keep_prob=0.6, dropout_mask=packed)
    assert numels == cells
    start = 4 * (Q_LENGTHS[0] * KV_LENGTHS[0])
    block = bits[start : start + 4 * 3 * 5].reshape(4, 3, 5)
    expected = attention(
        q[2:5].transpose(0, 1),
        k[5:10].transpose(0, 1),
        v[5:10].transpose(0, 1),
        Row(kept=lambda n, i, j: bool(block[n, i, j]), keep_prob=0.6),
    )[0]
    torch.testing.assert_close(out[2:5].transpose(0, 1), expected, rtol=1e-9, atol=1e-9)


def test_flat_pse_lists_the_sequences() -> None:
    q, k, v = tensors()
    lists = {"actual_seq_qlen": ends(Q_LENGTHS), "actual_seq_kvlen": ends(KV_LENGTHS)}
    m = Make(torch.float64)
    parts = [m.normal(4, sq, sk) for sq, sk in zip(Q_LENGTHS, KV_LENGTHS, strict=True)]
    out, *_ = OP.golden(q, k, v, 4, "TND", **lists, pse=torch.cat([part.flatten() for part in parts]))
    part = parts[2]
    expected = attention(
        q[2:5].transpose(0, 1),
        k[5:10].transpose(0, 1),
        v[5:10].transpose(0, 1),
        Row(bias=lambda n, i, j: float(part[n, i, j])),
    )[0]
    torch.testing.assert_close(out[2:5].transpose(0, 1), expected, rtol=1e-9, atol=1e-9)

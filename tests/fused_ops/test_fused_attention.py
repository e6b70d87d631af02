"""npu_fusion_attention against its check vectors and against loops over heads and rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from attention_oracle import LOWEST, Row, attention
from fused_make import Make
from torch import Tensor

import fused_ops

torch.set_num_threads(1)
OP = fused_ops.reference("npu_fusion_attention")
V2 = fused_ops.reference("npu_fusion_attention_v2")
COMPRESSED = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
LAYOUTS = ("BNSD", "BSND", "BSH", "SBH")


def f(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def in_layout(tensor: Tensor, layout: str) -> Tensor:
    """[B, N, S, D] in another layout."""
    batch, heads, rows, size = tensor.shape
    if layout == "BSND":
        return tensor.permute(0, 2, 1, 3)
    if layout == "BSH":
        return tensor.permute(0, 2, 1, 3).reshape(batch, rows, heads * size)
    if layout == "SBH":
        return tensor.permute(2, 0, 1, 3).reshape(rows, batch, heads * size)
    return tensor


QUERY = ((torch.arange(8) - 3) / 4).double().reshape(1, 2, 2, 2)
KEY = ((torch.arange(6) - 2) / 4).double().reshape(1, 1, 3, 2)
VALUE = torch.arange(6).double().reshape(1, 1, 3, 2)
ROW_HIDDEN = torch.tensor([[True, True, True], [False, False, False]])
CAUSAL = {"atten_mask": COMPRESSED, "scale": 0.5}

# name: (keywords, output, maximum, sum)
VECTORS: dict[str, tuple[dict[str, Any], Tensor, Tensor | None, Tensor | None]] = {
    "no mask": (
        {"scale": 0.5},
        f(1.5899746, 2.5899746, 1.9167209, 2.9167209, 2.2485462, 3.2485462, 2.5654642, 3.5654642),
        f(0.25, 0.0625, 0.25, 0.5625),
        f(2.2668771, 2.8219100, 2.5163184, 2.0625105),
    ),
    "left-up causal": (
        {**CAUSAL, "sparse_mode": 2},
        f(0, 1, 0.9687602, 1.9687602, 0, 1, 1.2153263, 2.2153263),
        f(0.25, 0.0625, -0.125, 0.125),
        f(1, 1.9394131, 1, 1.6456485),
    ),
    "right-down causal": (
        {**CAUSAL, "sparse_mode": 3},
        f(0.8450093, 1.8450093, 1.9167209, 2.9167209, 1.0934763, 2.0934763, 2.5654642, 3.5654642),
        f(0.25, 0.0625, 0.0625, 0.5625),
        f(1.7316156, 2.8219100, 1.8290291, 2.0625105),
    ),
    "band of the diagonal": (
        {**CAUSAL, "sparse_mode": 4, "pre_tockens": 0, "next_tockens": 0},
        f(2, 3, 4, 5, 2, 3, 4, 5),
        f(-0.0625, -0.0625, 0.0625, 0.5625),
        f(1, 1, 1, 1),
    ),
    "a row without sight": (
        {"scale": 0.5, "atten_mask": ROW_HIDDEN},
        f(2, 3, 1.9167209, 2.9167209, 2, 3, 2.5654642, 3.5654642),
        f(LOWEST, 0.0625, LOWEST, 0.5625),
        f(3, 2.8219100, 3, 2.0625105),
    ),
    "scale left out": (
        {},
        f(1.2166995, 2.2166995, 1.8337659, 2.8337659, 2.4886273, 3.4886273, 3.0388625, 4.0388625),
        None,
        None,
    ),
    "pse": (
        {"scale": 0.5, "pse": f(0, 1, 2).expand(1, 2, 1, 3)},
        f(2.2485462, 3.2485462, 2.5654642, 3.5654642, 2.8511393, 3.8511393, 3.0960086, 4.0960086),
        None,
        None,
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vector(name: str) -> None:
    keywords, out, maximum, total = VECTORS[name]
    results = OP.golden(QUERY, KEY, VALUE, 2, "BNSD", **keywords)
    assert len(results) == 7
    torch.testing.assert_close(results[0].flatten(), out, rtol=0, atol=1e-6)
    for found, expected in ((results[1], maximum), (results[2], total)):
        assert tuple(found.shape) == (1, 2, 2, 8)
        assert torch.equal(found, found[..., :1].expand_as(found))
        if expected is not None:
            torch.testing.assert_close(found[..., 0].flatten(), expected, rtol=1e-7, atol=1e-6)


def test_row_without_sight_is_zero_with_inner_precise_2() -> None:
    out, maximum, total, *_ = OP.golden(QUERY, KEY, VALUE, 2, "BNSD", scale=0.5, atten_mask=ROW_HIDDEN, inner_precise=2)
    assert torch.equal(out[:, :, 0], torch.zeros(1, 2, 2).double())
    assert (maximum[:, :, 0] == LOWEST).all()
    assert (total[:, :, 0] == -LOWEST).all()


def test_rows_that_the_band_leaves_out_are_zero_in_mode_0() -> None:
    # Row 0 sees nothing because of next_tockens alone; the mask agrees.
    mask = torch.tensor([[True, True, True], [False, True, True]])
    keywords = {"scale": 0.5, "atten_mask": mask, "pre_tockens": 2, "next_tockens": -1}
    out, _, total, *_ = OP.golden(QUERY, KEY, VALUE, 2, "BNSD", **keywords)
    assert torch.equal(out[:, :, 0], torch.zeros(1, 2, 2).double())
    assert (total[:, :, 0] == -LOWEST).all()
    assert not {0, 1, 2} & set(OP.uncompared(QUERY, KEY, VALUE, 2, "BNSD", **keywords))
    without_band = {"scale": 0.5, "atten_mask": mask}
    assert {1, 2} <= set(OP.uncompared(QUERY, KEY, VALUE, 2, "BNSD", **without_band))


@dataclass(frozen=True)
class Case:
    """Keywords of a call on q [2,4,Sq,6], k [2,2,Skv,6], v [2,2,Skv,4], and the same for the oracle, per batch."""

    keywords: Callable[[Make, int, int], dict[str, Any]]
    row: Callable[[dict[str, Any], int, int, int], Row]
    sizes: tuple[tuple[int, int], ...] = ((3, 5), (4, 4), (5, 3))


def _hidden_by(rule: Callable[[int, int, int], bool], **more: Any) -> Callable[..., Row]:
    """A row rule of (row, column, columns − rows)."""
    return lambda kw, b, sq, sk: Row(
        scale=kw.get("scale", 1.0), hidden=lambda n, i, j: rule(i, j, sk - sq), zero_empty=True, **more
    )


def _given(kw: dict[str, Any], b: int, sq: int, sk: int) -> Row:
    mask = kw["atten_mask"].expand(2, 4, sq, sk)
    return Row(scale=kw.get("scale", 1.0), hidden=lambda n, i, j: bool(mask[b, n, i, j]))


def _biased(inside: bool) -> Callable[..., Row]:
    def row(kw: dict[str, Any], b: int, sq: int, sk: int) -> Row:
        pse = kw["pse"].expand(2, 4, sq, sk)
        return Row(scale=kw["scale"], bias=lambda n, i, j: float(pse[b, n, i, j]), bias_inside_scale=inside)

    return row


def _alibi(root: bool) -> Callable[..., Row]:
    def row(kw: dict[str, Any], b: int, sq: int, sk: int) -> Row:
        slopes = kw["pse"].expand(2, 4)
        start = (kw.get("q_start_idx") or [0])[0] - (kw.get("kv_start_idx") or [0])[0]

        def bias(n: int, i: int, j: int) -> float:
            distance = abs(i + start - j)
            return -float(slopes[b, n]) * (math.sqrt(distance) if root else distance)

        return Row(scale=kw["scale"], bias=bias, bias_inside_scale=False)

    return row


def _packed(bits: Tensor) -> Tensor:
    """Flags in flat order as bytes, the lowest bit first, padded to 16 bytes."""
    flat = bits.flatten().to(torch.int64)
    flat = torch.cat([flat, torch.zeros(-flat.numel() % 128, dtype=torch.int64)]).reshape(-1, 8)
    return (flat * (1 << torch.arange(8))).sum(1).to(torch.uint8)


def _dropped(kw: dict[str, Any], b: int, sq: int, sk: int) -> Row:
    packed = kw["dropout_mask"].tolist()

    def kept(n: int, i: int, j: int) -> bool:
        bit = ((b * 4 + n) * sq + i) * sk + j
        return bool(packed[bit // 8] >> (bit % 8) & 1)

    return Row(scale=kw["scale"], kept=kept, keep_prob=kw["keep_prob"])


def _some_sight(m: Make, *shape: int) -> Tensor:
    """Random masks that hide no whole row."""
    mask = m.flags(*shape)
    mask[..., 0] = False
    return mask


CASES: dict[str, Case] = {
    "plain": Case(lambda m, sq, sk: {"scale": 0.3}, lambda kw, b, sq, sk: Row(scale=0.3)),
    "mask SS": Case(lambda m, sq, sk: {"atten_mask": _some_sight(m, sq, sk)}, _given),
    "mask 11SS uint8": Case(lambda m, sq, sk: {"atten_mask": m.flags(1, 1, sq, sk).to(torch.uint8)}, _given),
    "mask B1SS": Case(lambda m, sq, sk: {"atten_mask": _some_sight(m, 2, 1, sq, sk), "sparse_mode": 1}, _given),
    "mask BNSS": Case(lambda m, sq, sk: {"atten_mask": _some_sight(m, 2, 4, sq, sk), "scale": 0.5}, _given),
    "modes without a mask": Case(
        lambda m, sq, sk: {"sparse_mode": 3, "pre_tockens": 0, "next_tockens": 0}, lambda kw, b, sq, sk: Row()
    ),
    "mode 2": Case(lambda m, sq, sk: {**CAUSAL, "sparse_mode": 2}, _hidden_by(lambda i, j, d: j > i)),
    "mode 3": Case(lambda m, sq, sk: {**CAUSAL, "sparse_mode": 3}, _hidden_by(lambda i, j, d: j > i + d)),
    "mode 4": Case(
        lambda m, sq, sk: {**CAUSAL, "sparse_mode": 4, "pre_tockens": 2, "next_tockens": -1},
        _hidden_by(lambda i, j, d: not i + d - 2 <= j <= i + d - 1),
    ),
    "mode 5": Case(
        lambda m, sq, sk: {
            "atten_mask": (torch.arange(sk) > torch.arange(sq).unsqueeze(1) + sk - sq)
            & (torch.arange(sk) >= torch.tensor([2, 1]).reshape(2, 1, 1, 1)),
            "sparse_mode": 5,
            "prefix": [2, 1],
        },
        _given,
    ),
    "mode 6": Case(
        lambda m, sq, sk: {
            "atten_mask": torch.ones(3072, 2048, dtype=torch.bool),
            "sparse_mode": 6,
            "prefix": [2, 1],
            "scale": 0.5,
        },
        lambda kw, b, sq, sk: Row(
            scale=0.5, hidden=lambda n, i, j: j > i + sk - sq and j >= kw["prefix"][b], zero_empty=True
        ),
    ),
    "pse BNSS": Case(lambda m, sq, sk: {"scale": 0.5, "pse": m.normal(2, 4, sq, sk)}, _biased(True)),
    "pse BN1S": Case(lambda m, sq, sk: {"scale": 0.5, "pse": m.normal(2, 4, 1, sk)}, _biased(True)),
    "pse 1NSS": Case(lambda m, sq, sk: {"scale": 0.5, "pse": m.normal(1, 4, sq, sk)}, _biased(True)),
    "sink": Case(
        lambda m, sq, sk: {"sink": m.normal(4, dtype=torch.float32)},
        lambda kw, b, sq, sk: Row(sink=kw["sink"].tolist()),
    ),
    "given dropout mask": Case(
        lambda m, sq, sk: {"scale": 0.5, "keep_prob": 0.7, "dropout_mask": _packed(~m.flags(2, 4, sq, sk))}, _dropped
    ),
}
V2_CASES: dict[str, Case] = {
    "pse_type 0": Case(lambda m, sq, sk: {"scale": 0.5, "pse": m.normal(2, 4, sq, sk), "pse_type": 0}, _biased(False)),
    "pse_type 2": Case(
        lambda m, sq, sk: {"scale": 0.5, "pse": m.positive(4), "pse_type": 2, "q_start_idx": [3], "kv_start_idx": [1]},
        _alibi(False),
    ),
    "pse_type 3": Case(lambda m, sq, sk: {"scale": 0.5, "pse": m.positive(2, 4), "pse_type": 3}, _alibi(True)),
}
ALL = [("npu_fusion_attention", name) for name in CASES] + [("npu_fusion_attention_v2", name) for name in V2_CASES]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("op", "name"), ALL)
def test_against_loops(op: str, name: str, layout: str) -> None:
    case = {**CASES, **V2_CASES}[name]
    for sq, sk in case.sizes:
        m = Make(torch.float64, seed=sq)
        q, k, v = m.normal(2, 4, sq, 6), m.normal(2, 2, sk, 6), m.normal(2, 2, sk, 4)
        keywords = case.keywords(m, sq, sk)
        given = [in_layout(item, layout) for item in (q, k, v)]
        out, maximum, total, *_ = fused_ops.reference(op).golden(*given, 4, layout.lower(), **keywords)
        for b in range(2):
            expected = attention(q[b], k[b], v[b], case.row(keywords, b, sq, sk))
            found = in_layout(torch.zeros(2, 4, sq, 4).double(), layout).shape
            assert out.shape == found
            torch.testing.assert_close(_batch(out, b, layout), expected[0], rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(maximum[b, ..., 0], expected[1], rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(total[b, ..., 0], expected[2], rtol=1e-9, atol=1e-9)


def _batch(out: Tensor, b: int, layout: str) -> Tensor:
    """One batch of an output as [N, S, D]."""
    if layout == "BNSD":
        return out[b]
    if layout == "BSND":
        return out[b].permute(1, 0, 2)
    rows = out[b] if layout == "BSH" else out[:, b]
    return rows.reshape(rows.shape[0], 4, -1).permute(1, 0, 2)


def test_fp16_is_rounded_once() -> None:
    m = Make(torch.float16)
    q, k, v = m.normal(1, 2, 8, 16), m.normal(1, 2, 9, 16), m.normal(1, 2, 9, 16)
    own, golden = OP(q, k, v, 2, "BNSD", scale=0.25), OP.golden(q, k, v, 2, "BNSD", scale=0.25)
    assert own[0].dtype == torch.float16
    assert own[1].dtype == own[2].dtype == torch.float32
    # One rounding of the float32 result is at most half a unit in the last place away, float32 errors aside.
    unit = torch.finfo(torch.float16).eps / 2
    assert ((own[0].double() - golden[0]).abs() <= golden[0].abs() * unit * 1.01 + 1e-6).all()


def test_blocks_of_rows_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from fused_ops import attention_core

    m = Make(torch.float64)
    q, k, v = m.normal(2, 4, 7, 6), m.normal(2, 2, 5, 6), m.normal(2, 2, 5, 4)
    keywords = {**CAUSAL, "sparse_mode": 3, "pse": m.normal(1, 4, 7, 5), "sink": m.normal(4, dtype=torch.float32)}
    whole = OP.golden(q, k, v, 4, "BNSD", **keywords)
    monkeypatch.setattr(attention_core, "_CELLS_PER_BLOCK", 2 * 4 * 5 * 2)
    for left, right in zip(OP.golden(q, k, v, 4, "BNSD", **keywords)[:3], whole[:3], strict=True):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


def test_alibi_compressed_pse_is_the_full_one() -> None:
    m = Make(torch.float64)
    rows = 1100
    q, k, v = m.normal(1, 1, rows, 4), m.normal(1, 1, rows, 4), m.normal(1, 1, rows, 4)
    distance = torch.arange(rows) - torch.arange(rows).unsqueeze(1)
    full = (0.01 * distance).double().reshape(1, 1, rows, rows)
    keywords = {**CAUSAL, "sparse_mode": 2}
    expected = OP.golden(q, k, v, 1, "BNSD", pse=full, **keywords)[0]
    found = OP.golden(q, k, v, 1, "BNSD", pse=full[:, :, -1024:].contiguous(), **keywords)[0]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_rotary_parts_are_more_of_the_same_head() -> None:
    m = Make(torch.float64)
    q, k, v = m.normal(2, 3, 4, 6), m.normal(2, 5, 2, 6), m.normal(2, 5, 2, 4)
    q_rope, k_rope = m.normal(2, 3, 4, 2), m.normal(2, 5, 2, 2)
    joined = V2.golden(torch.cat([q, q_rope], 3), torch.cat([k, k_rope], 3), v, 4, "BSND", scale=0.4)
    apart = V2.golden(q, k, v, 4, "BSND", scale=0.4, query_rope=q_rope, key_rope=k_rope)
    for left, right in zip(joined[:3], apart[:3], strict=True):
        torch.testing.assert_close(left, right)


def test_no_keys_give_zero() -> None:
    m = Make(torch.float64)
    out, *_ = OP.golden(m.normal(1, 2, 3, 4), m.normal(1, 2, 0, 4), m.normal(1, 2, 0, 4), 2, "BNSD")
    assert torch.equal(out, torch.zeros(1, 2, 3, 4).double())

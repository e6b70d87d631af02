"""npu_fusion_attention_grad and its versions against autograd through the forward, and its check vector."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fused_make import Make
from torch import Tensor

import fused_ops

torch.set_num_threads(1)
COMPRESSED = torch.ones(2048, 2048, dtype=torch.bool).triu(1)


def f(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_vector() -> None:
    query = ((torch.arange(8) - 3) / 4).double().reshape(1, 2, 2, 2)
    key = ((torch.arange(6) - 2) / 4).double().reshape(1, 1, 3, 2)
    value, dy = torch.arange(6).double().reshape(1, 1, 3, 2), torch.arange(8).double().reshape(1, 2, 2, 2)
    options = {"atten_mask": COMPRESSED, "sparse_mode": 3}
    results = fused_ops.reference("npu_fusion_attention_grad").golden(
        query, key, value, dy, 2, "BNSD", scale_value=0.5, **options
    )
    expected = (
        f(0.1219972, 0.1219972, 1.6634160, 1.6634160, 1.1151700, 1.1151700, 3.9456459, 3.9456459),
        f(-2.4778367, -4.3635264, -0.5056764, -0.1574117, 2.9835132, 4.5209381),
        f(3.7344705, 5.3217116, 4.7309927, 6.3461753, 3.5345367, 4.3321131),
    )
    for found, wanted in zip(results[:3], expected, strict=True):
        torch.testing.assert_close(found.flatten(), wanted, rtol=0, atol=1e-6)
    assert results[3] is None
    assert results[4].numel() == 0


def _tensors(layout: str, m: Make) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    shapes = {
        "BNSD": ((2, 4, 3, 6), (2, 2, 5, 6), (2, 2, 5, 4), (2, 4, 3, 4)),
        "BSND": ((2, 3, 4, 6), (2, 5, 2, 6), (2, 5, 2, 4), (2, 3, 4, 4)),
        "BSH": ((2, 3, 24), (2, 5, 12), (2, 5, 8), (2, 3, 16)),
        "SBH": ((3, 2, 24), (5, 2, 12), (5, 2, 8), (3, 2, 16)),
        "TND": ((5, 4, 6), (7, 2, 6), (7, 2, 4), (5, 4, 4)),
    }[layout]
    q, k, v, dy = (m.normal(*shape) for shape in shapes)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), dy


def _bits(m: Make) -> Tensor:
    return m.below(256, 16, dtype=torch.uint8)


CASES: dict[str, tuple[str, Any]] = {
    "plain": ("BNSD", lambda m: {}),
    "layout BSND": ("BSND", lambda m: {}),
    "layout BSH": ("BSH", lambda m: {}),
    "layout SBH": ("SBH", lambda m: {"atten_mask": COMPRESSED, "sparse_mode": 2}),
    "right-down": ("BNSD", lambda m: {"atten_mask": COMPRESSED, "sparse_mode": 3}),
    "band with empty rows": (
        "BNSD",
        lambda m: {"atten_mask": COMPRESSED, "sparse_mode": 4, "pre_tockens": 3, "next_tockens": -3},
    ),
    "mean rows": ("BNSD", lambda m: {"atten_mask": torch.tensor([[1] * 5, [0] * 5, [0, 1, 0, 1, 1]]).bool()}),
    "pse BNSS": ("BNSD", lambda m: {"pse": m.normal(2, 4, 3, 5)}),
    "pse 1NSS": ("BSH", lambda m: {"pse": m.normal(1, 4, 3, 5)}),
    "pse BN1S": ("BNSD", lambda m: {"pse": m.normal(2, 4, 1, 5)}),
    "sink": ("BNSD", lambda m: {"sink": m.normal(4)}),
    "TND": ("TND", lambda m: {"actual_seq_qlen": [2, 2, 5], "actual_seq_kvlen": [3, 4, 7]}),
    "TND statistics by row": (
        "TND",
        lambda m: {
            "actual_seq_qlen": [2, 5],
            "actual_seq_kvlen": [3, 7],
            "softmax_layout": "TND",
            "atten_mask": COMPRESSED,
            "sparse_mode": 3,
            "sink": m.normal(4),
        },
    ),
}


@pytest.mark.parametrize("given_statistics", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_against_autograd(name: str, given_statistics: bool) -> None:
    layout, options = CASES[name]
    m = Make(torch.float64, seed=4)
    q, k, v, dy = _tensors(layout, m)
    keywords = options(m)
    extra = [item for item in ("pse", "sink") if item in keywords]
    for item in extra:
        keywords[item].requires_grad_()
    out, maximum, total, *_ = fused_ops.reference("npu_fusion_attention").golden(
        q, k, v, 4, layout, scale=0.4, **keywords
    )
    expected = torch.autograd.grad(out, [q, k, v, *(keywords[item] for item in extra)], dy)
    statistics = {"softmax_max": maximum.detach(), "softmax_sum": total.detach()} if given_statistics else {}
    found = fused_ops.reference("npu_fusion_attention_grad").golden(
        q, k, v, dy, 4, layout, scale_value=0.4, attention_in=out.detach(), **statistics, **keywords
    )
    by_name = dict(zip(("q", "k", "v", "pse", "sink"), found, strict=True))
    for item, wanted in zip(["q", "k", "v", *extra], expected, strict=True):
        torch.testing.assert_close(by_name[item].detach(), wanted, rtol=1e-9, atol=1e-9)


def test_version_2_returns_the_rotary_parts() -> None:
    m = Make(torch.float64, seed=4)
    q, k, v, dy = _tensors("BSND", m)
    q_rope, k_rope = m.normal(2, 3, 4, 2).requires_grad_(), m.normal(2, 5, 2, 2).requires_grad_()
    slopes = m.positive(4)
    options = {"query_rope": q_rope, "key_rope": k_rope, "pse": slopes, "pse_type": 2}
    out, *_ = fused_ops.reference("npu_fusion_attention_v2").golden(q, k, v, 4, "BSND", scale=0.4, **options)
    expected = torch.autograd.grad(out, [q, k, v, q_rope, k_rope], dy)
    grad = fused_ops.reference("npu_fusion_attention_grad_v2")
    found = grad.golden(q, k, v, dy, 4, "BSND", scale_value=0.4, **options)
    assert len(found) == 7
    for index, wanted in zip((0, 1, 2, 4, 5), expected, strict=True):
        torch.testing.assert_close(found[index].detach(), wanted, rtol=1e-9, atol=1e-9)
    assert set(grad.uncompared(q, k, v, dy, 4, "BSND", **options)) == {3, 6}


def test_version_3_is_version_1_with_tensors() -> None:
    m = Make(torch.float64, seed=4)
    q, k, v, dy = _tensors("TND", m)
    lists = {"actual_seq_qlen": [2, 5], "actual_seq_kvlen": [3, 7]}
    first = fused_ops.reference("npu_fusion_attention_grad").golden(q, k, v, dy, 4, "TND", **lists)
    third = fused_ops.reference("npu_fusion_attention_grad_v3").golden(
        q, k, v, dy, 4, "TND", **{name: torch.tensor(value) for name, value in lists.items()}
    )
    assert all(torch.equal(a, b) for a, b in zip(first[:3], third[:3], strict=True))


def test_gradcheck_of_the_forward() -> None:
    m = Make(torch.float64, seed=4)
    q, k, v, _ = _tensors("BNSD", m)
    sink, pse = m.normal(4).requires_grad_(), m.normal(1, 4, 3, 5).requires_grad_()

    def forward(q: Tensor, k: Tensor, v: Tensor, pse: Tensor, sink: Tensor) -> Tensor:
        options = {"scale": 0.4, "atten_mask": COMPRESSED, "sparse_mode": 3, "pse": pse, "sink": sink}
        return fused_ops.reference("npu_fusion_attention").golden(q, k, v, 4, "BNSD", **options)[0]

    assert torch.autograd.gradcheck(forward, (q, k, v, pse, sink), fast_mode=True)


def test_what_is_not_compared() -> None:
    grad = fused_ops.reference("npu_fusion_attention_grad")
    m = Make()
    q, k, v, dy = (item.detach() for item in _tensors("BNSD", m))
    cases: dict[str, tuple[dict[str, Any], set[int]]] = {
        "plain": ({}, {3, 4}),
        "pse without gradient": ({"pse": m.normal(2, 4, 3, 5)}, {3, 4}),
        "pse with gradient": ({"pse": m.normal(2, 4, 3, 5).requires_grad_()}, {4}),
        "sink": ({"sink": m.normal(4)}, {3}),
        "unknown dropout": ({"keep_prob": 0.9}, {0, 1, 2, 3, 4}),
        "mean rows": ({"atten_mask": torch.ones(3, 5, dtype=torch.bool)}, {0, 1, 3, 4}),
    }
    for name, (keywords, expected) in cases.items():
        assert set(grad.uncompared(q, k, v, dy, 4, "BNSD", **keywords)) == expected, name
    assert torch.isnan(grad(q, k, v, dy, 4, "BNSD", keep_prob=0.9)[0]).all()

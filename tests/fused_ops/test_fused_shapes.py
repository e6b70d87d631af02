"""Ranks, broadcasts, empty tensors and numbers at the edge, operator by operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fused_make import Make
from torch import Tensor

import fused_ops

torch.set_num_threads(1)


def op(name: str) -> fused_ops.FusedOp:
    return fused_ops.reference(name)


# name: (operator, positional arguments, expected shapes)
EMPTY: dict[str, tuple[str, tuple[Any, ...], list[tuple[int, ...]]]] = {
    "fast_gelu": ("fast_gelu", (torch.ones(0, 3),), [(0, 3)]),
    "rms_norm without rows": ("npu_rms_norm", (torch.ones(0, 3), torch.ones(3)), [(0, 3), (0, 1)]),
    "rms_norm gradient": (
        "npu_rms_norm_backward",
        (torch.ones(0, 3), torch.ones(0, 3), torch.ones(3), torch.ones(0, 1)),
        [(0, 3), (3,)],
    ),
    "layer_norm": ("npu_layer_norm_eval", (torch.ones(0, 3), [3]), [(0, 3)]),
    "group_norm": ("npu_group_norm_silu", (torch.ones(0, 4, 2), None, None, 2), [(0, 4, 2), (0, 2), (0, 2)]),
    "swiglu": ("npu_swiglu", (torch.ones(0, 4),), [(0, 2)]),
    "rotary": ("npu_rotary_mul", (torch.ones(0, 1, 1, 4), torch.ones(4), torch.ones(4)), [(0, 1, 1, 4)]),
    "linear": ("npu_linear", (torch.ones(0, 3), torch.ones(2, 3)), [(0, 2)]),
    "linear without sum": ("npu_linear", (torch.ones(2, 0), torch.ones(3, 0)), [(2, 3)]),
    "softmax": ("npu_scaled_masked_softmax", (torch.ones(0, 3), torch.zeros(0, 3).bool()), [(0, 3)]),
    "transpose": ("npu_confusion_transpose", (torch.ones(0, 3), [1, 0], [3, 0], True), [(3, 0)]),
    "sort": ("npu_sort_v2", (torch.ones(0),), [(0,)]),
    "permute": ("npu_moe_token_permute", (torch.ones(0, 3), torch.ones(0, 2).long()), [(0, 3), (0,)]),
    "cast": ("npu_dtype_cast", (torch.ones(0), torch.float16), [(0,)]),
    "pad": ("npu_pad", (torch.ones(0, 2), [1, 0, 0, 0]), [(1, 2)]),
    "grouped": ("npu_grouped_matmul", ([torch.ones(0, 2)], [torch.ones(2, 3)]), [(0, 3)]),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty(name: str) -> None:
    operator, args, shapes = EMPTY[name]
    for call in (op(operator), op(operator).golden):
        result = call(*args)
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        assert [tuple(item.shape) for item in outputs] == shapes
        assert not any(item.isnan().any() for item in outputs)


def test_rms_norm_gradient_of_no_rows_is_zero() -> None:
    _, dgamma = op("npu_rms_norm_backward")(torch.ones(0, 3), torch.ones(0, 3), torch.ones(3), torch.ones(0, 1))
    assert dgamma.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["fast_gelu", "npu_gelu", "npu_silu", "npu_mish"])
def test_activations_far_from_zero(name: str) -> None:
    far = torch.tensor([-1e4, -60000.0, 1e4, 0.0], dtype=torch.float16)
    assert op(name)(far).tolist() == [0.0, 0.0, 1e4, 0.0]
    backward = {"fast_gelu": "npu_fast_gelu_backward", "npu_gelu": "npu_gelu_backward", "npu_mish": "npu_mish_backward"}
    if name in backward:
        slope = op(backward[name])(torch.ones(3).half(), far[:3])
        assert slope.tolist() == [0.0, 0.0, 1.0]


def test_infinities_and_nan_pass_through() -> None:
    special = torch.tensor([torch.inf, torch.nan])
    assert torch.isinf(op("fast_gelu")(special)[0])
    assert torch.isnan(op("fast_gelu")(special)[1])
    assert op("npu_gelu_backward")(torch.ones(2), torch.tensor([torch.inf, -torch.inf])).tolist() == [1.0, 0.0]


def test_a_result_beyond_float16_is_infinite_but_its_golden_is_not() -> None:
    x = torch.tensor([[300.0, 300.0]], dtype=torch.float16)
    assert torch.isinf(op("npu_swiglu")(x)).all()
    assert op("npu_swiglu").golden(x).tolist() == [[90000.0]]


def test_scalars_as_tensors_and_numpy() -> None:
    state = (torch.ones(2), torch.zeros(2), torch.ones(2))
    plain = op("npu_apply_adam_w")(0.9, 0.99, 0.1, 0.1, 0.9, 0.99, 1e-6, torch.ones(2), None, False, False, out=state)
    wrapped = op("npu_apply_adam_w")(
        torch.tensor([0.9], dtype=torch.float64),
        np.float64(0.99),
        torch.tensor(0.1, dtype=torch.float64),
        np.array([0.1]),
        0.9,
        0.99,
        epsilon=np.float64(1e-6),
        grad=torch.ones(2),
        max_grad_norm=None,
        amsgrad=None,
        maximize=None,
        out=state,
    )
    assert all(torch.equal(a, b) for a, b in zip(plain, wrapped, strict=True))


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("dim", [-1, 1])
def test_clipped_swiglu_by_loops(interleaved: bool, dim: int) -> None:
    m = Make(torch.float64)
    x = m.normal(3, 4, 2) * 3
    call: dict[str, Any] = {"dim": dim, "alpha": 1.2, "limit": 2.0, "bias": 0.5, "interleaved": interleaved}
    found = op("npu_clipped_swiglu").golden(x, **call)
    flat = x.reshape(12, 2) if dim == -1 else x.reshape(3, 8)
    half = flat.shape[1] // 2
    expected = torch.empty(flat.shape[0], half).double()
    for r in range(flat.shape[0]):
        for c in range(half):
            a = float(flat[r, 2 * c if interleaved else c])
            b = float(flat[r, 2 * c + 1 if interleaved else half + c])
            a, b = min(a, 2.0), max(-2.0, min(b, 2.0))
            expected[r, c] = a / (1 + np.exp(-1.2 * a)) * (b + 0.5)
    torch.testing.assert_close(found, expected.reshape(found.shape))
    group = torch.tensor([1, 1])
    left_out = op("npu_clipped_swiglu").uncompared(x, group_index=group, **call)
    assert (0 in left_out) == (flat.shape[0] > 2)
    assert op("npu_clipped_swiglu").uncompared(x, **call) == {}


@pytest.mark.parametrize("shape", [(4, 6), (2, 4, 3), (2, 4, 3, 2), (1, 4, 2, 2, 2), (1, 2, 1, 1, 1, 1, 1, 2)], ids=str)
def test_group_norm_of_every_rank(shape: tuple[int, ...]) -> None:
    x = Make(torch.float64).normal(*shape)
    out, mean, rstd = op("npu_group_norm_silu").golden(x, None, None, 2)
    flat = x.reshape(shape[0], 2, -1)
    torch.testing.assert_close(mean, flat.mean(-1))
    torch.testing.assert_close(rstd, (flat.var(-1, correction=0) + 1e-5).rsqrt())
    normal = ((flat - mean.unsqueeze(-1)) * rstd.unsqueeze(-1)).reshape(shape)
    torch.testing.assert_close(out, normal / (1 + torch.exp(-normal)))


def _masks() -> list[Tensor]:
    return [torch.tensor(True), torch.tensor([True, False, True]), torch.tensor([[True], [False]])]


@pytest.mark.parametrize("mask", _masks(), ids=lambda mask: str(tuple(mask.shape)))
def test_masked_softmax_broadcasts_its_mask(mask: Tensor) -> None:
    x = Make(torch.float64).normal(2, 3)
    found = op("npu_scaled_masked_softmax").golden(x, mask, 2.0)
    full = mask.expand(2, 3)
    for row in range(2):
        scores = [-10000.0 if full[row, j] else 2.0 * float(x[row, j]) for j in range(3)]
        weights = np.exp(np.array(scores) - max(scores))
        torch.testing.assert_close(found[row], torch.from_numpy(weights / weights.sum()))


def test_a_score_below_the_fill_loses_to_masked_entries() -> None:
    x = torch.tensor([-60000.0, 0.0])
    found = op("npu_scaled_masked_softmax")(x, torch.tensor([False, True]))
    assert found.tolist() == [0.0, 1.0]

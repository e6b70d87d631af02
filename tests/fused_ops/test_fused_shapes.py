"""Layouts, ranks, broadcasts, empty tensors and numbers at the edge, operator by operator."""

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


def test_integer_linear() -> None:
    x, w = torch.tensor([[100, -128]], dtype=torch.int8), torch.tensor([[127, 127], [1, 2]], dtype=torch.int8)
    bias = torch.tensor([1, 2], dtype=torch.int32)
    result = op("npu_linear")(x, w, bias)
    assert result.dtype == torch.int32
    assert result.tolist() == [[100 * 127 - 128 * 127 + 1, 100 - 256 + 2]]


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


@pytest.mark.parametrize("layout", ["BSND", "SBND", "BNSD", "TND"])
@pytest.mark.parametrize("mode", ["half", "interleave", "quarter"])
def test_rotary_of_query_and_key(layout: str, mode: str) -> None:
    """Every layout is npu_rotary_mul on the turned part; the rest passes."""
    m = Make(torch.float64)
    shapes = {
        "BSND": ((2, 3, 4, 8), (2, 3, 1, 8), (2, 3, 1, 4)),
        "SBND": ((3, 2, 4, 8), (3, 2, 1, 8), (3, 1, 1, 4)),
        "BNSD": ((2, 4, 3, 8), (2, 1, 3, 8), (1, 1, 3, 4)),
        "TND": ((6, 4, 8), (6, 1, 8), (6, 1, 4)),
    }[layout]
    q, k, cos, sin = m.normal(*shapes[0]), m.normal(*shapes[1]), m.normal(*shapes[2]), m.normal(*shapes[2])
    results = op("npu_apply_rotary_pos_emb").golden(q, k, cos, sin, layout, mode)
    for x, found in zip((q, k), results, strict=True):
        turned = op("npu_rotary_mul").golden(x[..., :4].contiguous(), cos, sin, mode)
        torch.testing.assert_close(found, torch.cat([turned, x[..., 4:]], -1))


def test_rotary_with_a_given_matrix() -> None:
    m = Make(torch.float64)
    x, cos, sin = m.normal(2, 3, 1, 4), m.normal(4), m.normal(4)
    # The half mode as a matrix: [−x₂, x₁] = x @ matrix.
    matrix = torch.zeros(4, 4).double()
    matrix[2, 0] = matrix[3, 1] = -1
    matrix[0, 2] = matrix[1, 3] = 1
    expected = op("npu_rotary_mul").golden(x, cos, sin)
    torch.testing.assert_close(op("npu_rotary_mul").golden(x, cos, sin, rotate=matrix), expected)


def test_rotary_rounds_the_angles_first() -> None:
    x, angle = torch.ones(1, 1, 1, 2).half(), torch.full((2,), 1 / 3)
    golden = op("npu_rotary_mul").golden(x, angle, torch.zeros(2))
    assert golden.flatten().tolist() == [float(angle[0].half())] * 2


@pytest.mark.parametrize("cache_mode", ["default", "interleave"])
@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_mrope_by_loops(mode: str, cache_mode: str) -> None:
    m = Make(torch.float64)
    section, head, half = [3, 2, 1], 16, 6
    positions, cache = m.below(9, 3, 4), m.normal(9, 2 * half)
    query, key = m.normal(4, 2 * head), m.normal(4, head)
    results = op("npu_mrope").golden(
        positions, query, key, cache, head, mrope_section=section, rotary_mode=mode, cache_mode=cache_mode
    )
    for x, found in zip((query, key), results, strict=True):
        expected = x.clone().reshape(4, -1, head)
        for t in range(4):
            for d in range(half):
                if cache_mode == "default":
                    row = 0 if d < 3 else 1 if d < 5 else 2
                else:
                    row = d % 3 if d < 3 * section[1] else 0
                cos, sin = cache[positions[row, t], d], cache[positions[row, t], half + d]
                a, b = (d, d + half) if mode == "half" else (2 * d, 2 * d + 1)
                for h in range(expected.shape[1]):
                    first, second = x.reshape(4, -1, head)[t, h, a], x.reshape(4, -1, head)[t, h, b]
                    expected[t, h, a] = first * cos - second * sin
                    expected[t, h, b] = second * cos + first * sin
        torch.testing.assert_close(found, expected.reshape(x.shape))


def test_rope_of_one_row_of_positions_and_of_four_sections() -> None:
    m = Make(torch.float64)
    cache, query = m.normal(5, 8), m.normal(3, 8)
    one = op("npu_mrope").golden(torch.tensor([0, 4, 2]), query, query, cache, 8)
    four = op("npu_mrope").golden(
        torch.tensor([[0, 4, 2]] * 4), query, query, cache, 8, mrope_section=[1, 1, 1, 1], rotary_mode=None
    )
    assert torch.equal(one[0], four[0])


def test_grouped_matmul_forms() -> None:
    """One call in every form that the manual knows: lists, rows split, joined, ends and sizes, K split."""
    m = Make(torch.float64)
    x, w, b = m.normal(6, 4), m.normal(3, 4, 5), m.normal(3, 5)
    rows = [slice(0, 2), slice(2, 2), slice(2, 6)]
    parts = [x[r] @ w[i] + b[i] for i, r in enumerate(rows)]
    grouped = op("npu_grouped_matmul").golden
    ends, sizes = torch.tensor([2, 2, 6]), torch.tensor([2, 0, 4])
    weights, biases = list(w.unbind(0)), list(b.unbind(0))
    calls: list[Any] = [
        grouped([x], weights, bias=biases, group_list=[2, 2, 6], split_item=1),
        grouped([x], weights, bias=biases, group_list=ends, split_item=0, group_type=0),
        grouped([x], [w], bias=[b], group_list=sizes, group_list_type=1, split_item=1, group_type=0),
        grouped([x[r] for r in rows], weights, bias=biases, group_type=-1),
    ]
    for found in calls:
        assert len(found) == 3
        for left, right in zip(found, parts, strict=True):
            torch.testing.assert_close(left, right)
    for split in (2, 3):
        (joined,) = grouped([x], [w], bias=[b], group_list=ends, split_item=split, group_type=0)
        torch.testing.assert_close(joined, torch.cat(parts))
    (whole,) = grouped([m.normal(2, 3, 4)], [w[0]], group_type=-1)
    assert tuple(whole.shape) == (2, 3, 5)


def test_grouped_matmul_split_along_k() -> None:
    m = Make(torch.float64)
    x, w = m.normal(3, 6), m.normal(6, 5)
    (found,) = op("npu_grouped_matmul").golden([x], [w], group_list=torch.tensor([2, 6]), split_item=3, group_type=2)
    torch.testing.assert_close(found, torch.stack([x[:, :2] @ w[:2], x[:, 2:] @ w[2:]]))


def test_grouped_matmul_rows_behind_the_last_group() -> None:
    x, w = torch.ones(5, 2), torch.ones(1, 2, 3)
    call: dict[str, Any] = {"x": [x], "weight": [w], "group_list": torch.tensor([3]), "split_item": 2, "group_type": 0}
    (found,) = op("npu_grouped_matmul")(**call)
    assert tuple(found.shape) == (5, 3)
    assert "undefined" in op("npu_grouped_matmul").uncompared(**call)[0]
    assert op("npu_grouped_matmul").uncompared(**{**call, "group_list": torch.tensor([5])}) == {}


def test_grouped_matmul_output_dtype() -> None:
    x, w = torch.ones(2, 2).half(), torch.ones(2, 3).half()
    assert op("npu_grouped_matmul")([x], [w], group_type=-1, output_dtype=torch.float32)[0].dtype == torch.float32


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_transposed_batch_matmul(factor: int) -> None:
    m = Make(torch.float64)
    x, w = m.normal(3, 2, 4), m.normal(2, 4, 6)
    found = op("npu_transpose_batchmatmul").golden(x, w, perm_x1=[1, 0, 2], batch_split_factor=factor)
    flat = torch.einsum("mbk,bkn->mbn", x, w).reshape(3, 12)
    expected = flat.reshape(3, 2, 6) if factor == 1 else torch.stack(flat.chunk(factor, 1))
    torch.testing.assert_close(found, expected)


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


def test_casts_round_in_both_runs() -> None:
    x = torch.tensor([1 / 3, 1e6, -2.75])
    half = x.half().double()
    assert torch.equal(op("npu_dtype_cast").golden(x, torch.float16), half)
    assert torch.equal(op("npu_dtype_cast").golden(x, 5), half)
    assert torch.equal(op("_npu_dtype_cast")(x, torch.int32), torch.tensor([0, 1000000, -2], dtype=torch.int32))
    back = op("npu_dtype_cast_backward")(x.half(), torch.float32, grad_dtype=None)
    assert torch.equal(back, x.half().float())
    same = op("npu_dtype_cast")(x, torch.float32)
    assert same.data_ptr() != x.data_ptr()


def test_format_cast_keeps_the_values_under_both_names() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(op("npu_format_cast")(x, 29), x)
    assert torch.equal(op("npu_format_cast")(input=x, acl_format=2, customize_dtype=3), x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16], ids=str)
def test_moves_of_any_dtype_are_exact_fresh_and_contiguous(dtype: torch.dtype) -> None:
    x = (torch.arange(24) % 5).to(dtype).reshape(4, 3, 2).transpose(0, 1)
    for result in (
        op("npu_confusion_transpose")(x, [2, 0, 1], [6, 4], True),
        op("npu_transpose")(x, [2, 0, 1]).reshape(6, 4),
    ):
        assert torch.equal(result, x.permute(2, 0, 1).reshape(6, 4))
        assert result.is_contiguous()
        assert result.dtype == dtype
    view = op("npu_confusion_transpose")(x, [0, 1, 2], [3, 4, 2], True)
    assert view.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


def test_one_hot_marks_nothing_outside_the_depth() -> None:
    result = op("npu_one_hot")(torch.tensor([0, 3, -1]), depth=2, on_value=2.5, off_value=-1)
    assert result.tolist() == [[2.5, -1], [-1, -1], [-1, -1]]
    assert result.dtype == torch.float32


def test_extremes_of_a_scalar_and_of_ties() -> None:
    values, index = op("npu_max")(torch.tensor([[2.0, 7.0, 7.0]]), 1)
    assert (values.tolist(), index.tolist(), index.dtype) == ([7.0], [1], torch.int32)
    assert op("npu_min")(torch.tensor(3.0), 0)[0] == 3.0


def test_sort_of_float32_is_the_manual_s_example() -> None:
    x = torch.tensor([[-0.0067, 1.7790, 0.5031, -1.7217], [1.1685, -1.0486, -0.2938, 1.3241]])
    expected = torch.tensor([[-1.7217, -0.0067, 0.5029, 1.7793], [-1.0488, -0.2937, 1.1689, 1.3242]])
    for found in (op("npu_sort_v2")(x), op("npu_sort_v2").golden(x).float()):
        torch.testing.assert_close(found, expected, rtol=0, atol=6e-5)
        assert torch.equal(found, found.half().float())


def test_sort_into_out_leaves_out_alone() -> None:
    out = torch.zeros(3)
    x = torch.tensor([3, 1, 2], dtype=torch.float16)
    assert op("npu_sort_v2")(x, out=out).tolist() == [1, 2, 3]
    assert out.tolist() == [0, 0, 0]


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

"""Moves, casts, one-hot, sorting and extremes: exact, fresh, contiguous."""

from __future__ import annotations

import pytest
import torch

import fused_ops

torch.set_num_threads(1)


def op(name: str) -> fused_ops.FusedOp:
    return fused_ops.reference(name)


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
    assert torch.equal(op("npu_format_cast")(x, torch.zeros(1)), x)


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

"""Matrix products: every form of npu_grouped_matmul, transposed batches, integers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fused_make import Make

import fused_ops

torch.set_num_threads(1)


def op(name: str) -> fused_ops.FusedOp:
    return fused_ops.reference(name)


def test_integer_linear() -> None:
    x, w = torch.tensor([[100, -128]], dtype=torch.int32), torch.tensor([[127, 127], [1, 2]], dtype=torch.int32)
    bias = torch.tensor([1, 2], dtype=torch.int32)
    result = op("npu_linear")(x, w, bias)
    assert result.dtype == torch.int32
    assert result.tolist() == [[100 * 127 - 128 * 127 + 1, 100 - 256 + 2]]
    assert op("npu_linear").uncompared(x, w, bias) == {}
    assert set(op("npu_linear").uncompared(x.to(torch.int8), w.to(torch.int8))) == {0}


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

"""Rotary embedding: layouts, modes, given matrices, and npu_mrope against loops."""

from __future__ import annotations

import pytest
import torch
from fused_make import Make

import fused_ops

torch.set_num_threads(1)


def op(name: str) -> fused_ops.FusedOp:
    return fused_ops.reference(name)


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

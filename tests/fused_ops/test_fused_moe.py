"""Mixture-of-experts operators against loops over tokens, choices and experts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from fused_make import Make
from torch import Tensor

import fused_ops

torch.set_num_threads(1)


def op(name: str) -> fused_ops.FusedOp:
    return fused_ops.reference(name)


def _gated_row(
    scores: list[float], bias: list[float], k: int, k_group: int, group_count: int, mode: int
) -> tuple[list[int], list[float]]:
    """Chosen experts and their scores, ties to the lower index."""
    size = len(scores) // group_count
    choice = [score + extra for score, extra in zip(scores, bias, strict=True)]
    groups = [choice[g * size : (g + 1) * size] for g in range(group_count)]
    value = [max(group) if mode == 0 else sum(sorted(group)[-2:]) for group in groups]
    best = sorted(range(group_count), key=lambda g: (-value[g], g))[:k_group]
    allowed = [e for e in range(len(scores)) if e // size in best]
    chosen = sorted(allowed, key=lambda e: (-choice[e], e))[:k]
    return chosen, [scores[e] for e in chosen]


@pytest.mark.parametrize("norm_type", [0, 1])
@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize(("k_group", "group_count"), [(1, 1), (2, 4), (3, 3)])
@pytest.mark.parametrize("biased", [False, True])
def test_gating_top_k(norm_type: int, mode: int, k_group: int, group_count: int, biased: bool) -> None:
    m = Make(torch.float64)
    # Whole numbers, so that ties occur.
    x, bias = m.below(3, 7, 12).double(), m.normal(12)
    y, index, out = op("npu_moe_gating_top_k").golden(
        x,
        3,
        bias=bias if biased else None,
        k_group=k_group,
        group_count=group_count,
        group_select_mode=mode,
        norm_type=norm_type,
        out_flag=True,
        routed_scaling_factor=2.5,
        eps=1e-3,
    )
    for row in range(7):
        values = x[row].tolist()
        if norm_type == 0:
            total = sum(math.exp(value) for value in values)
            scores = [math.exp(value) / total for value in values]
        else:
            scores = [1 / (1 + math.exp(-value)) for value in values]
        chosen, weights = _gated_row(scores, bias.tolist() if biased else [0.0] * 12, 3, k_group, group_count, mode)
        if norm_type == 1:
            weights = [weight / (sum(weights) + 1e-3) for weight in weights]
        assert index[row].tolist() == chosen
        torch.testing.assert_close(y[row], 2.5 * torch.tensor(weights, dtype=torch.float64))
        torch.testing.assert_close(out[row], torch.tensor(scores, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 5)], ids=str)
def test_gating_top_k_softmax_row_index(shape: tuple[int, ...]) -> None:
    x = Make().normal(*shape)
    rows = x[..., 0].numel()
    _, index, row_index = op("npu_moe_gating_top_k_softmax")(x, k=3)
    flat = row_index.reshape(rows, 3)
    assert all(int(flat[r, j]) == r + j * rows for r in range(rows) for j in range(3))
    assert torch.equal(
        index.reshape(rows, 3).long(), x.reshape(rows, 5).sort(descending=True, stable=True).indices[:, :3]
    )


def _sorted_pairs(indices: list[list[int]]) -> list[tuple[int, int, int]]:
    """(expert, token, choice) in the order of the permuted rows."""
    pairs = [(expert, token, choice) for token, row in enumerate(indices) for choice, expert in enumerate(row)]
    return sorted(pairs, key=lambda pair: (pair[0], pair[1], pair[2]))


@pytest.mark.parametrize(("count", "kept"), [(None, 10), (0, 10), (7, 7), (99, 10), (-3, 7)])
def test_permute_and_back(count: int | None, kept: int) -> None:
    m = Make(torch.float64)
    tokens, indices, probs = m.normal(5, 3), m.below(4, 5, 2), m.positive(5, 2)
    permuted, sorted_indices = op("npu_moe_token_permute").golden(tokens, indices, count)
    order = _sorted_pairs(indices.tolist())
    assert tuple(permuted.shape) == (kept, 3)
    assert tuple(sorted_indices.shape) == (10,)
    for row, (_, token, choice) in enumerate(order):
        assert int(sorted_indices[token * 2 + choice]) == row
        if row < kept:
            assert torch.equal(permuted[row], tokens[token])
    back = op("npu_moe_token_unpermute").golden(permuted, sorted_indices, probs)
    expected = torch.zeros(5, 3).double()
    for _, token, choice in order[:kept]:
        expected[token] += probs[token, choice] * tokens[token]
    torch.testing.assert_close(back, expected)


def test_permute_of_one_expert_per_token() -> None:
    tokens = torch.arange(4.0).reshape(4, 1)
    permuted, sorted_indices = op("npu_moe_token_permute")(tokens, torch.tensor([2, 0, 1, 0]))
    assert permuted.flatten().tolist() == [1, 3, 2, 0]
    assert sorted_indices.tolist() == [3, 0, 2, 1]
    assert torch.equal(op("npu_moe_token_unpermute")(permuted, sorted_indices), tokens)


def test_padded_mode_takes_the_token_of_every_row() -> None:
    m = Make(torch.float64)
    tokens, indices = m.normal(3, 2), torch.tensor([[0, 2], [2, 1]])
    permuted, same = op("npu_moe_token_permute").golden(tokens, indices, padded_mode=True)
    assert torch.equal(permuted, tokens[[0, 2, 2, 1]])
    assert same.tolist() == [0, 2, 2, 1]
    back = op("npu_moe_token_unpermute").golden(permuted, same, padded_mode=True, restore_shape=[3, 2])
    torch.testing.assert_close(back, tokens * torch.tensor([[1.0], [1.0], [2.0]]))


MAP = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 0]], dtype=torch.int8)


def test_routing_map() -> None:
    m = Make(torch.float64)
    tokens, probs = m.normal(4, 2), m.positive(4, 3)
    permuted, permuted_probs, index = op("npu_moe_token_permute_with_routing_map").golden(
        tokens, MAP, probs=probs, num_out_tokens=8
    )
    rows = [(token, expert) for expert in range(3) for token in range(4) if MAP[token, expert]]
    assert torch.equal(permuted, tokens[[token for token, _ in rows]])
    assert permuted_probs.tolist() == [float(probs[pair]) for pair in rows]
    by_token = sorted(range(8), key=lambda row: (rows[row][0], row))
    assert index.tolist() == by_token
    back = op("npu_moe_token_unpermute_with_routing_map").golden(permuted, index, [4, 2], probs=probs, routing_map=MAP)
    torch.testing.assert_close(back, tokens * (probs * MAP).sum(1, keepdim=True))
    plain = op("npu_moe_token_unpermute_with_routing_map").golden(permuted, index, [4, 2])
    torch.testing.assert_close(plain, 2 * tokens)


def test_routing_map_with_capacity() -> None:
    m = Make(torch.float64)
    tokens, probs = m.normal(4, 2), m.positive(4, 3)
    permuted, permuted_probs, index = op("npu_moe_token_permute_with_routing_map").golden(
        tokens, MAP, probs=probs, num_out_tokens=10, drop_and_pad=True
    )
    # 10 rows are 3 for each of 3 experts: those who take part first, then the others, in token order.
    rows = [(0, 0), (1, 0), (3, 0), (1, 1), (2, 1), (3, 1), (0, 2), (2, 2), (1, 2)]
    assert index.tolist() == [token for token, _ in rows]
    assert torch.equal(permuted, tokens[[token for token, _ in rows]])
    assert permuted_probs.tolist() == [float(probs[pair]) for pair in rows]
    back = op("npu_moe_token_unpermute_with_routing_map").golden(
        permuted, index, [4, 2], probs=probs, routing_map=MAP, drop_and_pad=True
    )
    expected = torch.zeros(4, 2).double()
    for token, expert in rows:
        expected[token] += probs[token, expert] * tokens[token]
    torch.testing.assert_close(back, expected)


@pytest.mark.parametrize("active", [0, 2, 9])
def test_init_routing(active: int) -> None:
    m = Make(torch.float64)
    x, experts = m.normal(4, 3), m.below(3, 4, 2, dtype=torch.int32)
    row_index = torch.arange(8, dtype=torch.int32).reshape(2, 4).t()
    expanded, place, sorted_experts = op("npu_moe_init_routing").golden(x, row_index, experts, active)
    flat = [(int(e), int(r)) for e, r in zip(experts.flatten(), row_index.flatten(), strict=True)]
    order = sorted(range(8), key=lambda i: (flat[i][0], i))
    assert sorted_experts.tolist() == [flat[i][0] for i in order]
    assert all(int(place[flat[i][1]]) == position for position, i in enumerate(order))
    kept = min(4, active) * 2
    assert torch.equal(expanded, x[[flat[i][1] % 4 for i in order[:kept]]])


def _finalized(a: dict[str, Any], rows: int, top_k: int, by_row: bool) -> Tensor:
    table = a["expanded_permuted_rows"].reshape(-1, a["expanded_permuted_rows"].shape[-1])
    out = torch.zeros(rows, table.shape[1]).double()
    for i in range(rows):
        for name in ("skip1", "skip2"):
            if a[name] is not None:
                out[i] += a[name][i]
        for k in range(top_k):
            place = int(a["expanded_src_to_dst_row"][i * top_k + k if by_row else k * rows + i])
            value = torch.zeros(table.shape[1]).double() if place == -1 else table[place].clone()
            if a["bias"] is not None:
                value += a["bias"][int(a["export_for_source_row"][i, k])]
            out[i] += value if a["scales"] is None else a["scales"][i, k] * value
    return out


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("left_out", [(), ("skip1", "skip2"), ("bias", "export_for_source_row"), ("skip2",)], ids=str)
def test_finalize_routing(mode: int, left_out: tuple[str, ...]) -> None:
    m = Make(torch.float64)
    order = m.order(8)
    arguments: dict[str, Any] = {
        "expanded_permuted_rows": m.normal(2, 4, 3) if mode in {1, 3} else m.normal(8, 3),
        "skip1": m.normal(4, 3),
        "skip2": m.normal(4, 3),
        "bias": m.normal(5, 3),
        "scales": m.normal(4, 2),
        "expanded_src_to_dst_row": torch.where(order == 5, -1, order) if mode in {1, 3} else order,
        "export_for_source_row": m.below(5, 4, 2, dtype=torch.int32),
    }
    arguments.update(dict.fromkeys(left_out))
    found = op("npu_moe_finalize_routing").golden(**arguments, drop_pad_mode=mode)
    torch.testing.assert_close(found, _finalized(arguments, 4, 2, mode in {2, 3}))


def test_finalize_routing_without_scales_takes_k() -> None:
    m = Make(torch.float64)
    arguments: dict[str, Any] = {
        "expanded_permuted_rows": m.normal(6, 2),
        "skip1": None,
        "skip2": None,
        "bias": None,
        "scales": None,
        "expanded_src_to_dst_row": m.order(6),
        "export_for_source_row": None,
    }
    found = op("npu_moe_finalize_routing").golden(**arguments, k=3)
    torch.testing.assert_close(found, _finalized(arguments, 2, 3, False))


def test_gradients_without_probs() -> None:
    m = Make(torch.float64)
    rows, grad, index = m.normal(4, 3), m.normal(4, 3), m.order(4)
    dtokens, dprobs = op("npu_moe_token_unpermute_grad").golden(rows, grad, index)
    assert torch.equal(dtokens[index.long()], grad)
    assert tuple(dprobs.shape) == ()
    assert set(op("npu_moe_token_unpermute_grad").uncompared(rows, grad, index)) == {1}
    _, dprobs = op("npu_moe_token_unpermute_grad_v2")(grad, index, 4, torch.float64, m.positive(4, 1))
    assert tuple(dprobs.shape) == (4, 1)

"""Mixture-of-experts gating: scores to the k best experts of every token."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register


@register(
    "npu_moe_gating_top_k_softmax(Tensor x, Tensor? finished=None, int k=1) "
    "-> (Tensor y, Tensor expert_idx, Tensor row_idx)",
    source="op-plugin schema, manual and test: softmax over the last dimension, stable top-k (the lowest index wins a "
    "tie); float16 orders by float16 probabilities, bfloat16 by float32 ones",
)
def moe_gating_top_k_softmax(
    run: Precision, x: Tensor, finished: Tensor | None, k: int
) -> tuple[Tensor, Tensor, Tensor]:
    check(x.dim() in {2, 3}, "x", x, "must have 2 or 3 dimensions")
    experts = x.shape[-1]
    check(0 <= k <= experts, "k", k, f"must be at most the number of experts, {experts}")
    probabilities = torch.softmax(run.up(x), -1)
    # The device orders float16 inputs by float16 probabilities: rounding before the stable sort makes the same ties.
    order_by = probabilities.to(torch.float16) if x.dtype == torch.float16 else probabilities
    expert_idx = stable_top_k(order_by, k)
    y = probabilities.gather(-1, expert_idx)
    if finished is not None:
        check(finished.shape == x.shape[:-1], "finished", finished, f"must have the shape {tuple(x.shape[:-1])}")
        expert_idx = expert_idx.masked_fill(finished.bool().unsqueeze(-1), experts)
    return run.down(y, x.dtype), expert_idx.to(torch.int32), row_indices(x.shape[:-1], k, x.device)


def stable_top_k(scores: Tensor, k: int) -> Tensor:
    """Indices of the k largest along the last dimension, equal ones in order of their index."""
    return torch.sort(scores, dim=-1, descending=True, stable=True).indices[..., :k]


def row_indices(leading: torch.Size, k: int, device: torch.device) -> Tensor:
    """row_idx[r, j] = r + j·R with R rows, in the shape leading + [k]."""
    rows = leading.numel()
    table = torch.arange(k * rows, dtype=torch.int32, device=device).reshape(k, rows).t()
    return table.reshape(*leading, k).contiguous()


@register(
    "npu_moe_gating_top_k(Tensor x, int k, *, Tensor? bias=None, Tensor? input_ids=None, Tensor? tid2eid=None, "
    "int k_group=1, int group_count=1, int group_select_mode=0, int renorm=0, int norm_type=0, bool out_flag=False, "
    "float routed_scaling_factor=1.0, float eps=1e-20) -> (Tensor y, Tensor expert_idx, Tensor out)",
    source="op-plugin schema, manual and test: the bias decides the choice but not the weights; with norm_type 1 the "
    "weights are divided by their sum plus eps. The manual's code fails for group_count 1, its text does not",
    uncompared_note="out unless out_flag is set",
    uncompared=lambda bound: {} if bound["out_flag"] else {2: "not written unless out_flag is set"},
)
def moe_gating_top_k(
    run: Precision,
    x: Tensor,
    k: int,
    bias: Tensor | None,
    k_group: int,
    group_count: int,
    group_select_mode: int,
    norm_type: int,
    out_flag: bool,
    routed_scaling_factor: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    check(x.dim() == 2, "x", x, "must have 2 dimensions")
    rows, experts = x.shape
    check(group_count > 0 and experts % group_count == 0, "group_count", group_count, f"must divide {experts} experts")
    check(1 <= k_group <= group_count, "k_group", k_group, f"must lie in [1, {group_count}]")
    size = experts // group_count
    check(1 <= k <= size * k_group, "k", k, f"must lie in [1, {size * k_group}], the experts of {k_group} groups")
    check(norm_type in {0, 1}, "norm_type", norm_type, "must be 0 (softmax) or 1 (sigmoid)")
    check(group_select_mode in {0, 1}, "group_select_mode", group_select_mode, "must be 0 (maximum) or 1 (sum of two)")
    scores = torch.softmax(run.up(x), -1) if norm_type == 0 else torch.sigmoid(run.up(x))
    choice = scores
    if bias is not None:
        check(tuple(bias.shape) == (experts,), "bias", bias, f"must have the shape [{experts}]")
        choice = scores + run.up(bias)
    if group_count > 1:
        choice = _only_best_groups(choice.reshape(rows, group_count, size), k_group, group_select_mode)
    expert_idx = stable_top_k(choice, k)
    y = scores.gather(-1, expert_idx)
    if norm_type == 1:
        y = y / (y.sum(-1, keepdim=True) + eps)
    out = scores if out_flag else torch.zeros_like(scores)
    y = y * routed_scaling_factor
    return run.down(y, x.dtype), expert_idx.to(torch.int32), run.down(out, torch.float32)


def _only_best_groups(choice: Tensor, k_group: int, mode: int) -> Tensor:
    """[rows, groups, size] flattened, −inf outside the k_group best groups."""
    if mode == 0:
        group_score = choice.amax(-1)
    else:
        check(choice.shape[-1] >= 2, "group_select_mode", mode, "needs at least two experts in a group")
        group_score = choice.topk(2, -1).values.sum(-1)
    chosen = torch.zeros_like(group_score, dtype=torch.bool)
    chosen.scatter_(-1, stable_top_k(group_score, k_group), True)
    return choice.masked_fill(~chosen.unsqueeze(-1), -torch.inf).flatten(1)

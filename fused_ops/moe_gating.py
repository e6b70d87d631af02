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

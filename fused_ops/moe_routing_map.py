"""Mixture-of-experts: tokens sorted by expert and back, by a map [tokens, experts] of who takes part.

Without drop_and_pad sorted_indices[i] is the row of the i-th pair in token order; with it, sorted_indices[r] is the
token of row r and every expert has the same capacity.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import check
from .movement import fresh
from .precision import Precision
from .registry import register


def _check_map(routing_map: Tensor, tokens: int) -> Tensor:
    check(
        routing_map.dim() == 2 and routing_map.shape[0] == tokens,
        "routing_map",
        routing_map,
        f"must be [{tokens}, experts]",
    )
    return routing_map.bool()


@register(
    "npu_moe_token_permute_with_routing_map(Tensor tokens, Tensor routing_map, *, Tensor? probs=None, "
    "int? num_out_tokens=None, bool drop_and_pad=False) -> (Tensor permuted_tokens, Tensor permuted_probs, "
    "Tensor sorted_indices)",
    source="op-plugin schema, host code and test; num_out_tokens is rounded down to a multiple of the tokens, or of "
    "the "
    "experts with drop_and_pad",
    standard="binary consistency",
    uncompared_note="the result for probs where there are none",
    uncompared=lambda bound: {1: "undefined: there are no probs"} if bound["probs"] is None else {},
)
def moe_token_permute_with_routing_map(
    run: Precision,
    tokens: Tensor,
    routing_map: Tensor,
    probs: Tensor | None,
    num_out_tokens: int | None,
    drop_and_pad: bool,
) -> tuple[Tensor, Tensor | None, Tensor]:
    check(tokens.dim() == 2, "tokens", tokens, "must have 2 dimensions")
    chosen = _check_map(routing_map, tokens.shape[0]).t()
    experts, count = chosen.shape
    check(probs is None or probs.shape == routing_map.shape, "probs", probs, "must have routing_map's shape")
    wanted = tokens.shape[0] if num_out_tokens is None else num_out_tokens
    unit = experts if drop_and_pad else count
    wanted = wanted // unit * unit if unit else 0
    if drop_and_pad:
        capacity = wanted // experts if experts else 0
        check(capacity <= count, "num_out_tokens", num_out_tokens, f"a capacity of {capacity} exceeds {count} tokens")
        # Those who take part come first, then the others fill up, both in token order.
        token = torch.argsort((~chosen).to(torch.uint8), dim=-1, stable=True)[:, :capacity].reshape(-1)
        expert = torch.arange(experts, device=token.device).repeat_interleave(capacity)
        index = token.to(torch.int32)
    else:
        expert, token = chosen.nonzero(as_tuple=True)
        expert, token = expert[:wanted], token[:wanted]
        index = torch.argsort(token, stable=True).to(torch.int32)
    permuted_probs = None if probs is None else fresh(run, probs[token, expert])
    return fresh(run, tokens.index_select(0, token)), permuted_probs, index


@register(
    "npu_moe_token_permute_with_routing_map_grad(Tensor permuted_token_out_grad, Tensor? probs_grad, "
    "Tensor sorted_indices, Tensor routing_map, SymInt experts_num, SymInt tokens_num, bool drop_and_pad) "
    "-> (Tensor dtokens, Tensor dprobs)",
    source="op-plugin schema and derivatives; the derivative of npu_moe_token_permute_with_routing_map",
    backward_of="npu_moe_token_permute_with_routing_map",
    uncompared_note="dprobs without probs_grad",
    uncompared=lambda bound: {1: "undefined: there is no probs_grad"} if bound["probs_grad"] is None else {},
)
def moe_token_permute_with_routing_map_grad(
    run: Precision,
    permuted_token_out_grad: Tensor,
    probs_grad: Tensor | None,
    sorted_indices: Tensor,
    routing_map: Tensor,
    experts_num: int,
    tokens_num: int,
    drop_and_pad: bool,
) -> tuple[Tensor, Tensor | None]:
    chosen = _check_map(routing_map, tokens_num)
    dy, index = run.up(permuted_token_out_grad), sorted_indices.reshape(-1).long()
    if drop_and_pad:
        token = index
        expert = torch.arange(experts_num, device=index.device).repeat_interleave(index.numel() // max(experts_num, 1))
        rows = dy
    else:
        expert, token_of_row = (part[: index.numel()] for part in chosen.t().nonzero(as_tuple=True))
        token = token_of_row.sort(stable=True).values
        rows = dy[index]
    dtokens = run.down(dy.new_zeros(tokens_num, dy.shape[1]).index_add(0, token, rows), permuted_token_out_grad.dtype)
    if probs_grad is None:
        return dtokens, None
    place = token if drop_and_pad else token_of_row
    dprobs = run.up(probs_grad).new_zeros(tokens_num, experts_num)
    dprobs = dprobs.index_put((place, expert), run.up(probs_grad).reshape(-1), accumulate=True)
    return dtokens, run.down(dprobs, probs_grad.dtype)


@register(
    "npu_moe_token_unpermute_with_routing_map(Tensor permuted_tokens, Tensor sorted_indices, int[] restore_shape, *, "
    "Tensor? probs=None, Tensor? routing_map=None, bool drop_and_pad=False) -> Tensor",
    source="op-plugin schema, host code and test; without drop_and_pad every token has the same number of rows",
)
def moe_token_unpermute_with_routing_map(
    run: Precision,
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    restore_shape: tuple[int, ...],
    probs: Tensor | None,
    routing_map: Tensor | None,
    drop_and_pad: bool,
) -> Tensor:
    check(permuted_tokens.dim() == 2, "permuted_tokens", permuted_tokens, "must have 2 dimensions")
    fits = len(restore_shape) == 2 and restore_shape[1] == permuted_tokens.shape[1]
    check(fits, "restore_shape", restore_shape, f"must be [tokens, {permuted_tokens.shape[1]}]")
    rows, index = run.up(permuted_tokens), sorted_indices.reshape(-1).long()
    if drop_and_pad:
        if probs is not None:
            expert = _expert_of_row(index.numel(), probs.shape[1], index.device)
            rows = rows * run.up(probs)[index, expert].unsqueeze(1)
        result = rows.new_zeros(restore_shape).index_add(0, index, rows)
    else:
        top_k = index.numel() // max(restore_shape[0], 1)
        result = rows[index].reshape(restore_shape[0], top_k, restore_shape[1])
        if probs is not None:
            check(routing_map is not None, "routing_map", routing_map, "is required with probs")
            assert routing_map is not None
            picked = run.up(probs)[_check_map(routing_map, restore_shape[0])]
            result = result * picked.reshape(restore_shape[0], top_k, 1)
        result = result.sum(1)
    return run.down(result, permuted_tokens.dtype)


def _expert_of_row(rows: int, experts: int, device: torch.device) -> Tensor:
    return torch.arange(experts, device=device).repeat_interleave(rows // max(experts, 1))


@register(
    "npu_moe_token_unpermute_with_routing_map_grad(Tensor unpermuted_tokens_grad, Tensor out_index, "
    "Tensor permuted_token_id, Tensor? routing_map, Tensor? permuted_tokens, Tensor? probs, bool drop_and_pad, "
    "int[] restore_shape) -> (Tensor dtokens, Tensor dprobs)",
    source="op-plugin schema and derivatives; with drop_and_pad row out_index[i] belongs to token "
    "permuted_token_id[i], "
    "without it both are the forward's sorted_indices",
    backward_of="npu_moe_token_unpermute_with_routing_map",
    uncompared_note="the result for probs where there are none",
    uncompared=lambda bound: {1: "undefined: there are no probs"} if bound["probs"] is None else {},
)
def moe_token_unpermute_with_routing_map_grad(
    run: Precision,
    unpermuted_tokens_grad: Tensor,
    out_index: Tensor,
    permuted_token_id: Tensor,
    routing_map: Tensor | None,
    permuted_tokens: Tensor | None,
    probs: Tensor | None,
    drop_and_pad: bool,
    restore_shape: tuple[int, ...],
) -> tuple[Tensor, Tensor | None]:
    dy, row = run.up(unpermuted_tokens_grad), out_index.reshape(-1).long()
    tokens = restore_shape[0]
    if drop_and_pad:
        token = permuted_token_id.reshape(-1).long()
    else:
        token = torch.arange(tokens, device=row.device).repeat_interleave(row.numel() // max(tokens, 1))
    spread = dy[token]
    dprobs = None
    if probs is not None:
        if drop_and_pad:
            expert = row // max(row.numel() // max(probs.shape[1], 1), 1)
        else:
            check(routing_map is not None, "routing_map", routing_map, "is required with probs")
            assert routing_map is not None
            expert = _check_map(routing_map, tokens).nonzero(as_tuple=True)[1]
        check(permuted_tokens is not None, "permuted_tokens", permuted_tokens, "is required with probs")
        assert permuted_tokens is not None
        products = (run.up(permuted_tokens)[row] * spread).sum(1)
        dprobs = run.up(probs).new_zeros(probs.shape).index_put((token, expert), products, accumulate=True)
        spread = spread * run.up(probs)[token, expert].unsqueeze(1)
    dtokens = dy.new_zeros(row.numel(), dy.shape[1]).index_copy(0, row, spread)
    dtype = unpermuted_tokens_grad.dtype if permuted_tokens is None else permuted_tokens.dtype
    return run.down(dtokens, dtype), None if dprobs is None or probs is None else run.down(dprobs, probs.dtype)

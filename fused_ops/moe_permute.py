"""Mixture-of-experts: tokens sorted by expert and back, by expert indices.

sorted_indices[i] is the row to which the i-th pair (token i // top_k, choice i % top_k) goes; a row behind the last one
means that the pair was dropped. In padded mode the indices are the token of every row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .casts import dtype_of
from .errors import check
from .movement import fresh
from .precision import Precision
from .registry import register


@register(
    "npu_moe_token_permute(Tensor tokens, Tensor indices, int? num_out_tokens=None, bool padded_mode=False) "
    "-> (Tensor permuted_tokens, Tensor sorted_indices)",
    source="op-plugin schema file and test, kernel documentation: sorted_indices is the inverse of the stable sort "
    "(argsort twice), the test's plain helper returns the sort itself and says so; num_out_tokens 0 or None keeps "
    "all, a "
    "negative one drops from the end",
    standard="binary consistency",
)
def moe_token_permute(
    run: Precision, tokens: Tensor, indices: Tensor, num_out_tokens: int | None, padded_mode: bool
) -> tuple[Tensor, Tensor]:
    check(tokens.dim() == 2, "tokens", tokens, "must have 2 dimensions")
    check(indices.dim() in {1, 2}, "indices", indices, "must have 1 or 2 dimensions")
    flat = indices.reshape(-1).long()
    if padded_mode:
        return fresh(run, tokens.index_select(0, flat)), flat.to(torch.int32)
    top_k = 1 if indices.dim() == 1 else indices.shape[1]
    check(indices.shape[0] == tokens.shape[0], "indices", indices, f"must have {tokens.shape[0]} rows, one per token")
    order = torch.argsort(flat, stable=True)
    wanted = num_out_tokens or 0
    count = min(wanted, flat.numel()) if wanted > 0 else max(wanted + flat.numel(), 0)
    permuted = tokens.index_select(0, order[:count] // top_k)
    return fresh(run, permuted), torch.argsort(order).to(torch.int32)


def _permute_gradient(
    run: Precision, grad: Tensor, sorted_indices: Tensor, tokens: int, top_k: int, padded_mode: bool
) -> Tensor:
    dy, index = run.up(grad), sorted_indices.reshape(-1).long()
    if padded_mode:
        return dy.new_zeros(tokens, dy.shape[1]).index_add(0, index, dy)
    check(index.numel() == tokens * top_k, "sorted_indices", sorted_indices, f"must hold {tokens * top_k} entries")
    return _rows_or_zero(dy, index).reshape(tokens, top_k, dy.shape[1]).sum(1)


def _rows_or_zero(rows: Tensor, index: Tensor) -> Tensor:
    """rows[index], zero where the index lies behind the last row."""
    inside = index < rows.shape[0]
    padded = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
    return padded[torch.where(inside, index, rows.shape[0])]


@register(
    "npu_moe_token_permute_grad(Tensor tokens, Tensor grad_permuted_tokens, Tensor indices, Tensor sorted_indices, "
    "bool padded_mode=False) -> Tensor",
    source="op-plugin schema and schema file; the sum over a token's rows",
    backward_of="npu_moe_token_permute",
)
def moe_token_permute_grad(
    run: Precision,
    tokens: Tensor,
    grad_permuted_tokens: Tensor,
    indices: Tensor,
    sorted_indices: Tensor,
    padded_mode: bool,
) -> Tensor:
    top_k = 1 if indices.dim() == 1 else indices.shape[1]
    grad = _permute_gradient(run, grad_permuted_tokens, sorted_indices, tokens.shape[0], top_k, padded_mode)
    return run.down(grad, tokens.dtype)


@register(
    "npu_moe_token_permute_grad_v2(Tensor grad_permuted_tokens, Tensor sorted_indices, int tokens_size_0, "
    "ScalarType tokens_dtype, int num_topK, bool padded_mode=False) -> Tensor",
    source="op-plugin schema, schema file and derivatives; the sum over a token's rows",
    backward_of="npu_moe_token_permute",
)
def moe_token_permute_grad_v2(
    run: Precision,
    grad_permuted_tokens: Tensor,
    sorted_indices: Tensor,
    tokens_size_0: int,
    tokens_dtype: torch.dtype | int,
    num_topK: int,
    padded_mode: bool,
) -> Tensor:
    grad = _permute_gradient(run, grad_permuted_tokens, sorted_indices, tokens_size_0, num_topK, padded_mode)
    return run.down(grad, dtype_of("tokens_dtype", tokens_dtype))


@register(
    "npu_moe_token_unpermute(Tensor permuted_tokens, Tensor sorted_indices, Tensor? probs=None, "
    "bool padded_mode=False, int[]? restore_shape=None) -> Tensor",
    source="op-plugin schema, schema file, test and kernel documentation: row sorted_indices[i] times probs[i], summed "
    "over a token's choices; dropped pairs add nothing",
)
def moe_token_unpermute(
    run: Precision,
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None,
    padded_mode: bool,
    restore_shape: tuple[int, ...] | None,
) -> Tensor:
    check(permuted_tokens.dim() == 2, "permuted_tokens", permuted_tokens, "must have 2 dimensions")
    rows, index = run.up(permuted_tokens), sorted_indices.reshape(-1).long()
    if padded_mode:
        check(restore_shape is not None, "restore_shape", restore_shape, "is required in padded mode")
        assert restore_shape is not None
        weighted = rows if probs is None else rows * run.up(probs).reshape(-1, 1)
        return run.down(rows.new_zeros(restore_shape).index_add(0, index, weighted), permuted_tokens.dtype)
    top_k = _choices(probs, index)
    picked = _rows_or_zero(rows, index).reshape(-1, top_k, rows.shape[1])
    if probs is not None:
        picked = picked * run.up(probs).reshape(-1, top_k, 1)
    return run.down(picked.sum(1), permuted_tokens.dtype)


def _choices(probs: Tensor | None, index: Tensor) -> int:
    if probs is None:
        return 1
    check(probs.numel() == index.numel(), "probs", probs, f"must hold {index.numel()} entries, one per sorted index")
    return 1 if probs.dim() == 1 else probs.shape[1]


def _unpermute_gradients(
    run: Precision,
    grad: Tensor,
    sorted_indices: Tensor,
    rows: int,
    probs: Tensor | None,
    padded_mode: bool,
    permuted_tokens: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    dy, index = run.up(grad), sorted_indices.reshape(-1).long()
    weight = None if probs is None else run.up(probs).reshape(-1, 1)
    if padded_mode:
        spread = dy[index]
        dprobs = None
        if weight is not None and permuted_tokens is not None and probs is not None:
            dprobs = (run.up(permuted_tokens) * spread).sum(1).reshape(probs.shape)
        return spread if weight is None else spread * weight, dprobs
    top_k = _choices(probs, index)
    fits = dy.shape[0] * top_k == index.numel()
    check(fits, "grad_unpermuted_tokens", grad, f"must have {index.numel() // top_k} rows, one per token")
    spread = dy.repeat_interleave(top_k, 0)
    dprobs = None
    if probs is not None and permuted_tokens is not None:
        dprobs = (_rows_or_zero(run.up(permuted_tokens), index) * spread).sum(1).reshape(probs.shape)
    if weight is not None:
        spread = spread * weight
    inside = index < rows
    return dy.new_zeros(rows, dy.shape[1]).index_copy(0, index[inside], spread[inside]), dprobs


_NO_PROBS = {1: "not written without probs and permuted_tokens"}


def _dprobs_out(run: Precision, dprobs: Tensor | None, probs: Tensor | None, grad: Tensor) -> Tensor:
    """The host code allocates the output in any case: a scalar without probs."""
    if dprobs is None or probs is None:
        return grad.new_zeros(()) if probs is None else torch.zeros_like(probs)
    return run.down(dprobs, probs.dtype)


@register(
    "npu_moe_token_unpermute_grad(Tensor permuted_tokens, Tensor grad_unpermuted_tokens, Tensor sorted_indices, "
    "Tensor? probs=None, bool padded_mode=False, int[]? restore_shape=None) -> (Tensor dtokens, Tensor dprobs)",
    source="op-plugin schema and schema file; the derivative of npu_moe_token_unpermute",
    backward_of="npu_moe_token_unpermute",
    inert=("restore_shape",),
    uncompared=lambda bound: _NO_PROBS if bound["probs"] is None else {},
    uncompared_note="dprobs without probs",
)
def moe_token_unpermute_grad(
    run: Precision,
    permuted_tokens: Tensor,
    grad_unpermuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None,
    padded_mode: bool,
) -> tuple[Tensor, Tensor]:
    rows = permuted_tokens.shape[0]
    dtokens, dprobs = _unpermute_gradients(
        run, grad_unpermuted_tokens, sorted_indices, rows, probs, padded_mode, permuted_tokens
    )
    return run.down(dtokens, permuted_tokens.dtype), _dprobs_out(run, dprobs, probs, grad_unpermuted_tokens)


@register(
    "npu_moe_token_unpermute_grad_v2(Tensor grad_unpermuted_tokens, Tensor sorted_indices, int permuted_tokens_size_0, "
    "ScalarType permuted_tokens_dtype, Tensor? probs=None, bool padded_mode=False, int[]? restore_shape=None, "
    "Tensor? permuted_tokens=None) -> (Tensor dtokens, Tensor dprobs)",
    source="op-plugin schema, schema file and derivatives; permuted_tokens is there when probs needs a gradient",
    backward_of="npu_moe_token_unpermute",
    inert=("restore_shape",),
    uncompared_note="dprobs without probs or permuted_tokens",
    uncompared=lambda bound: _NO_PROBS if bound["probs"] is None or bound["permuted_tokens"] is None else {},
)
def moe_token_unpermute_grad_v2(
    run: Precision,
    grad_unpermuted_tokens: Tensor,
    sorted_indices: Tensor,
    permuted_tokens_size_0: int,
    permuted_tokens_dtype: torch.dtype | int,
    probs: Tensor | None,
    padded_mode: bool,
    permuted_tokens: Tensor | None,
) -> tuple[Tensor, Tensor]:
    dtokens, dprobs = _unpermute_gradients(
        run, grad_unpermuted_tokens, sorted_indices, permuted_tokens_size_0, probs, padded_mode, permuted_tokens
    )
    dtype = dtype_of("permuted_tokens_dtype", permuted_tokens_dtype)
    return run.down(dtokens, dtype), _dprobs_out(run, dprobs, probs, grad_unpermuted_tokens)

"""npu_fusion_attention and its versions 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention_call import AttentionCall, ends_of, no_padding_mask
from .attention_core import attend, row_blocks
from .attention_layouts import covered_rows, from_heads, heads_of, join_rows, segments, statistics_out, to_heads
from .attention_scores import empty_rows, masked, outside_band
from .errors import check
from .precision import Precision
from .registry import register

_SOURCE = (
    "op-plugin schema, manual and host code, kernel documentation: scale·(QKᵀ + pse) is followed for pse_type 1, "
    "the manual's own pse example (scale·QKᵀ + pse) is not; masked scores are replaced by the lowest float32"
)

_NOTE = (
    "seed, offset and numels (the random generator's state), the reserved softmax_out; attention_out and "
    "statistics as a whole where mask and band contradict each other or rows belong to no sequence, attention_out where "
    "an unknown dropout mask decided it, the statistics where a fully masked row gives the mean of V"
)


def call_of(bound: Mapping[str, Any]) -> AttentionCall:
    """The options of any version of the forward or backward operator, from its bound arguments."""
    no_padding_mask(bound["padding_mask"])
    spelling = "tockens" if "pre_tockens" in bound else "tokens"
    return AttentionCall(
        layout=bound["input_layout"].upper(),
        heads=bound["head_num"],
        scale=bound["scale"] if "scale" in bound else bound["scale_value"],
        keep_prob=bound["keep_prob"],
        pre=bound[f"pre_{spelling}"],
        next=bound[f"next_{spelling}"],
        inner_precise=bound["inner_precise"],
        prefix=tuple(bound["prefix"] or ()),
        q_ends=ends_of(bound["actual_seq_qlen"]),
        kv_ends=ends_of(bound["actual_seq_kvlen"]),
        sparse_mode=bound["sparse_mode"],
        softmax_layout=bound["softmax_layout"],
        pse=bound["pse"],
        mask=bound["atten_mask"],
        sink=bound["sink"],
        dropout=bound.get("dropout_mask"),
        pse_type=bound.get("pse_type", 1),
        q_start=next(iter(bound.get("q_start_idx") or ()), 0),
        kv_start=next(iter(bound.get("kv_start_idx") or ()), 0),
    ).checked(("scale", f"pre_{spelling}", f"next_{spelling}"))


def _forward(run: Precision, bound: Mapping[str, Any]) -> tuple[AttentionCall, Tensor, Tensor, Tensor, int]:
    """The call, its three tensors with values, and the number of cells that a dropout mask has."""
    call = call_of(bound)
    query, key, value = bound["query"], bound["key"], bound["value"]
    q, k, v = heads_of(call, query, key, value)
    q, k = with_rope(call, q, k, bound)
    outs: list[Tensor] = []
    maxima: list[Tensor] = []
    sums: list[Tensor] = []
    cells = 0
    for segment in segments(call, q, k, v):
        out, maximum, total = attend(run, call, segment)
        if sdpa_is_the_same(run, call, segment.rows, segment.columns, query):
            out = sdpa(call, segment.query, segment.key, segment.value)
        outs.append(out)
        maxima.append(maximum)
        sums.append(total)
        cells += segment.query.shape[0] * call.heads * segment.rows * segment.columns
    like = run.up(q.new_zeros(1, call.heads, 0, v.shape[3]))
    joined = join_rows(outs, like, q.shape[2]) if call.layout == "TND" else outs[0]
    if call.drops:
        # The mask is unknown: no value here may look like an answer.
        joined = torch.full_like(joined, torch.nan)
    out = run.down(from_heads(joined, call.layout), query.dtype)
    maximum = run.down(statistics_out(call, maxima, q.shape[2], like), torch.float32)
    total = run.down(statistics_out(call, sums, q.shape[2], like), torch.float32)
    return call, out, maximum, total, cells


def with_rope(call: AttentionCall, q: Tensor, k: Tensor, bound: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Query and key with version 2's rotary parts behind them: both parts enter one product of scores."""
    query_rope, key_rope = bound.get("query_rope"), bound.get("key_rope")
    check((query_rope is None) == (key_rope is None), "key_rope", key_rope, "must be given together with query_rope")
    if query_rope is None or key_rope is None:
        return q, k
    q_rope = to_heads(query_rope, call.layout, q.shape[1], "query_rope")
    k_rope = to_heads(key_rope, call.layout, k.shape[1], "key_rope")
    check(
        q_rope.shape[:3] == q.shape[:3], "query_rope", query_rope, "must have the query's batch size, heads and length"
    )
    check(k_rope.shape[:3] == k.shape[:3], "key_rope", key_rope, "must have the key's batch size, heads and length")
    check(
        q_rope.shape[3] == k_rope.shape[3], "key_rope", key_rope, f"must have query_rope's head size {q_rope.shape[3]}"
    )
    return torch.cat([q, q_rope], 3), torch.cat([k, k_rope], 3)


def sdpa_is_the_same(run: Precision, call: AttentionCall, rows: int, columns: int, query: Tensor) -> bool:
    """Whether torch's scaled_dot_product_attention is exactly this function, and worth taking: on a GPU, own dtype."""
    plain = call.pse is None and call.sink is None and call.keep_prob == 1 and call.dropout is None
    causal = call.sparse_mode == 2 or (call.sparse_mode == 3 and rows == columns)
    return not run.golden and query.is_cuda and plain and columns > 0 and (call.mask is None or causal)


def sdpa(call: AttentionCall, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same output by torch's own operator; its causal mask starts at the top left, as sparse_mode 2 does."""
    groups = q.shape[1] // k.shape[1]
    keys, values = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    return F.scaled_dot_product_attention(q, keys, values, is_causal=call.mask is not None, scale=call.scale)


def undefined_rows(call: AttentionCall, bound: Mapping[str, Any]) -> str | None:
    """Why the call as a whole is not comparable: cut-off rows, or a mask that contradicts the band."""
    rows = bound["query"].shape[0]
    if call.layout == "TND" and covered_rows(call.q_ends) < rows:
        return f"rows {covered_rows(call.q_ends)} to {rows} belong to no sequence and are uninitialised"
    if call.mask is None or call.sparse_mode != 0:
        return None
    q, k, v = heads_of(call, bound["query"], bound["key"], bound["value"])
    for segment in segments(call, q, k, v):
        for start, stop in row_blocks(segment):
            hidden = masked(call, segment, start, stop)
            if hidden is not None and bool((~hidden & outside_band(call, segment, start, stop)).any()):
                return "contract violation: atten_mask shows scores that pre_tockens and next_tockens leave out"
    return None


def has_mean_rows(call: AttentionCall, bound: Mapping[str, Any]) -> bool:
    """Whether some row is fully masked and gives the mean of V; the sources leave its statistics open."""
    if call.mask is None or call.zeroes_empty_rows:
        return False
    q, k, v = heads_of(call, bound["query"], bound["key"], bound["value"])
    for segment in segments(call, q, k, v):
        for start, stop in row_blocks(segment):
            found = empty_rows(call, segment, start, stop)
            if found is not None and bool(found[1].any()):
                return True
    return False


def _undefined(bound: Mapping[str, Any]) -> dict[int, str]:
    outputs = 6 if isinstance(bound["actual_seq_qlen"], Tensor) or "dropout_mask" not in bound else 7
    reasons = {3: "reserved: softmax_out is empty"}
    reasons.update(dict.fromkeys(range(4, outputs), "state of the device's random generator"))
    call = call_of(bound)
    whole = undefined_rows(call, bound)
    if whole is not None:
        reasons.update(dict.fromkeys(range(3), whole))
    elif has_mean_rows(call, bound):
        reasons.update(dict.fromkeys((1, 2), "a fully masked row: its maximum and sum are left open"))
    if call.drops:
        reasons[0] = "depends on a dropout mask that was not captured"
    return reasons


@register(
    "npu_fusion_attention(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, Tensor? pse=None, "
    "Tensor? padding_mask=None, Tensor? atten_mask=None, float scale=1., float keep_prob=1., "
    "int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, int[]? prefix=None, "
    "int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, "
    'bool sync=False, str softmax_layout="", Tensor? sink=None, Tensor? dropout_mask=None, int seed=0, int offset=0) '
    "-> (Tensor attention_out, Tensor softmax_max, Tensor softmax_sum, Tensor softmax_out, int seed, int offset, "
    "int numels)",
    source=_SOURCE,
    uncompared=_undefined,
    uncompared_note=_NOTE,
)
def fusion_attention(run: Precision, **bound: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:
    _, out, maximum, total, cells = _forward(run, bound)
    return out, maximum, total, bound["query"].new_empty(0), bound["seed"], bound["offset"], cells


@register(
    "npu_fusion_attention_v2(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, *, "
    "Tensor? pse=None, Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? query_rope=None, "
    "Tensor? key_rope=None, float scale=1., float keep_prob=1., int pre_tokens=2147483647, "
    "int next_tokens=2147483647, int inner_precise=0, int[]? prefix=None, int[]? actual_seq_qlen=None, "
    "int[]? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, int pse_type=1, "
    'int[]? q_start_idx=None, int[]? kv_start_idx=None, str softmax_layout="", Tensor? sink=None, '
    "Tensor? dropout_mask=None, int seed=0, int offset=0) "
    "-> (Tensor attention_out, Tensor softmax_max, Tensor softmax_sum, Tensor softmax_out, int seed, int offset, "
    "int numels)",
    source=_SOURCE + "; pse_type 2 and 3 as in the kernel: −slope·|i − j|, 3 with the root of the distance",
    uncompared=_undefined,
    uncompared_note=_NOTE,
)
def fusion_attention_v2(run: Precision, **bound: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:
    _, out, maximum, total, cells = _forward(run, bound)
    return out, maximum, total, bound["query"].new_empty(0), bound["seed"], bound["offset"], cells


@register(
    "npu_fusion_attention_v3(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, Tensor? pse=None, "
    "Tensor? padding_mask=None, Tensor? atten_mask=None, float scale=1., float keep_prob=1., "
    "int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, SymInt[]? prefix=None, "
    "Tensor? actual_seq_qlen=None, Tensor? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, "
    'bool sync=False, str softmax_layout="", Tensor? sink=None) '
    "-> (Tensor attention_out, Tensor softmax_max, Tensor softmax_sum, Tensor softmax_out, Tensor seed, Tensor offset)",
    source=_SOURCE + "; the sequence ends are tensors, seed and offset too, numels is gone",
    uncompared=_undefined,
    uncompared_note=_NOTE,
)
def fusion_attention_v3(run: Precision, **bound: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    _, out, maximum, total, _ = _forward(run, bound)
    state = torch.zeros(1, dtype=torch.int64, device=bound["query"].device)
    return out, maximum, total, bound["query"].new_empty(0), state, state.clone()

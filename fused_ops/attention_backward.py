"""The gradients of npu_fusion_attention and its versions 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .attention_call import AttentionCall
from .attention_core import Gradients, attend_backward
from .attention_forward import call_of, has_mean_rows, undefined_rows, with_rope
from .attention_layouts import from_heads, heads_of, segments, statistics_in, to_heads
from .errors import check
from .precision import Precision
from .registry import register

_SOURCE = (
    "op-plugin schema, derivatives and host code: dV = Pᵀ·dY, dS = P∘(dP − rowsum(dP∘P)), dQ = scale·dS·K, "
    "dK = scale·dSᵀ·Q; P is recomputed from the forward's maximum and sum. The kernel documentation gives no formula "
    "for dpse: the mathematical gradient is followed"
)

_NOTE = (
    "dpse unless pse required grad, and the gradients that do not exist for lack of pse, sink or rotary parts; "
    "everything where an unknown dropout mask decided it or mask and band contradict each other; dq and dk where a fully "
    "masked row gives the mean of V"
)


def _gradients(run: Precision, bound: Mapping[str, Any]) -> tuple[AttentionCall, dict[str, Tensor | None]]:
    call = call_of(bound)
    q, k, v = heads_of(call, bound["query"], bound["key"], bound["value"])
    size = q.shape[3]
    q, k = with_rope(call, q, k, bound)
    dy = run.up(to_heads(bound["dy"], call.layout, call.heads, "dy"))
    expected = (*q.shape[:3], v.shape[3])
    check(tuple(dy.shape) == expected, "dy", bound["dy"], f"must be {list(expected)} as [B, N, S, D]")
    both = bound["softmax_max"], bound["softmax_sum"]
    check((both[0] is None) == (both[1] is None), "softmax_sum", both[1], "must be given together with softmax_max")
    dq = torch.zeros_like(run.up(q))
    dk, dv = torch.zeros_like(run.up(k)), torch.zeros_like(run.up(v))
    dpse = None if call.pse is None else torch.zeros_like(run.up(call.pse))
    dsink = (
        bound["query"].new_zeros(0, dtype=torch.float32) if call.sink is None else torch.zeros_like(run.up(call.sink))
    )
    for segment in segments(call, q, k, v):
        statistics = None
        if both[0] is not None and both[1] is not None:
            statistics = (
                run.up(statistics_in(call, both[0], segment, "softmax_max")),
                run.up(statistics_in(call, both[1], segment, "softmax_sum")),
            )
        part = attend_backward(run, call, segment, dy.narrow(2, segment.q_start, segment.rows), statistics)
        _add(part, dq, dk, dv, segment.q_start, segment.kv_start)
        if dpse is not None and part.pse is not None:
            dpse += part.pse
        if part.sink is not None:
            dsink = dsink + part.sink
    if call.drops:
        for gradient in (dq, dk, dv):
            gradient.fill_(torch.nan)
    dtypes = bound["query"].dtype, bound["key"].dtype, bound["value"].dtype
    roped = bound.get("query_rope") is not None
    return call, {
        "dq": run.down(from_heads(dq[..., :size], call.layout), dtypes[0]),
        "dk": run.down(from_heads(dk[..., :size], call.layout), dtypes[1]),
        "dv": run.down(from_heads(dv, call.layout), dtypes[2]),
        "dpse": None if dpse is None or call.pse is None else run.down(dpse, call.pse.dtype),
        "dq_rope": run.down(from_heads(dq[..., size:], call.layout), dtypes[0]) if roped else None,
        "dk_rope": run.down(from_heads(dk[..., size:], call.layout), dtypes[1]) if roped else None,
        "dsink": run.down(dsink, torch.float32),
    }


def _add(part: Gradients, dq: Tensor, dk: Tensor, dv: Tensor, q_start: int, kv_start: int) -> None:
    """Put one segment's gradients where its rows stand."""
    row = q_start
    for block in part.query:
        dq.narrow(2, row, block.shape[2]).copy_(block)
        row += block.shape[2]
    dk.narrow(2, kv_start, part.key.shape[2]).add_(part.key)
    dv.narrow(2, kv_start, part.value.shape[2]).add_(part.value)


def _undefined(bound: Mapping[str, Any]) -> dict[int, str]:
    call = call_of(bound)
    last = 6 if "query_rope" in bound else 4
    reasons: dict[int, str] = {}
    if call.sink is None:
        reasons[last] = "empty: there is no sink"
    if call.pse is None:
        reasons[3] = "undefined: there is no pse"
    elif call.pse_type in {2, 3} or not call.pse.requires_grad:
        reasons[3] = "left open unless pse required grad"
    if last == 6 and bound["query_rope"] is None:
        reasons.update(dict.fromkeys((4, 5), "undefined: there are no rotary parts"))
    whole = undefined_rows(call, bound)
    if call.drops:
        whole = "depends on a dropout mask that was not captured"
    if whole is not None:
        return {**dict.fromkeys(range(last + 1), whole), **reasons}
    if has_mean_rows(call, bound):
        reasons.update(dict.fromkeys((0, 1), "a fully masked row: the sources give no rule for its gradient"))
    return reasons


@register(
    "npu_fusion_attention_grad(Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str input_layout, *, "
    "Tensor? pse=None, Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? softmax_max=None, "
    "Tensor? softmax_sum=None, Tensor? softmax_in=None, Tensor? attention_in=None, float scale_value=1., "
    "float keep_prob=1., int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, int seed=0, "
    "int offset=0, int numels=0, int[]? prefix=None, int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, "
    'int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, str softmax_layout="", Tensor? sink=None) '
    "-> (Tensor dq, Tensor dk, Tensor dv, Tensor dpse, Tensor dsink)",
    source=_SOURCE,
    backward_of="npu_fusion_attention",
    uncompared=_undefined,
    uncompared_note=_NOTE,
)
def fusion_attention_grad(run: Precision, **bound: Any) -> tuple[Tensor | None, ...]:
    _, found = _gradients(run, bound)
    return tuple(found[name] for name in ("dq", "dk", "dv", "dpse", "dsink"))


@register(
    "npu_fusion_attention_grad_v2(Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str input_layout, "
    "*, Tensor? pse=None, Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? softmax_max=None, "
    "Tensor? softmax_sum=None, Tensor? softmax_in=None, Tensor? attention_in=None, Tensor? query_rope=None, "
    "Tensor? key_rope=None, float scale_value=1., float keep_prob=1., int pre_tokens=2147483647, "
    "int next_tokens=2147483647, int inner_precise=0, int seed=0, int offset=0, int numels=0, int[]? prefix=None, "
    "int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, "
    "bool sync=False, int pse_type=1, int[]? q_start_idx=None, int[]? kv_start_idx=None, "
    'str softmax_layout="", Tensor? sink=None) '
    "-> (Tensor dq, Tensor dk, Tensor dv, Tensor dpse, Tensor dq_rope, Tensor dk_rope, Tensor dsink)",
    source=_SOURCE,
    backward_of="npu_fusion_attention_v2",
    uncompared=_undefined,
    uncompared_note=_NOTE,
)
def fusion_attention_grad_v2(run: Precision, **bound: Any) -> tuple[Tensor | None, ...]:
    _, found = _gradients(run, bound)
    return tuple(found[name] for name in ("dq", "dk", "dv", "dpse", "dq_rope", "dk_rope", "dsink"))


@register(
    "npu_fusion_attention_grad_v3(Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str input_layout, "
    "*, Tensor? pse=None, Tensor? padding_mask=None, Tensor? atten_mask=None, Tensor? softmax_max=None, "
    "Tensor? softmax_sum=None, Tensor? softmax_in=None, Tensor? attention_in=None, float scale_value=1., "
    "float keep_prob=1., int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, "
    "Tensor? seed=None, Tensor? offset=None, SymInt[]? prefix=None, Tensor? actual_seq_qlen=None, "
    "Tensor? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, "
    'str softmax_layout="", Tensor? sink=None) '
    "-> (Tensor dq, Tensor dk, Tensor dv, Tensor dpse, Tensor dsink)",
    source=_SOURCE,
    backward_of="npu_fusion_attention_v3",
    uncompared=_undefined,
    uncompared_note=_NOTE,
)
def fusion_attention_grad_v3(run: Precision, **bound: Any) -> tuple[Tensor | None, ...]:
    _, found = _gradients(run, bound)
    return tuple(found[name] for name in ("dq", "dk", "dv", "dpse", "dsink"))

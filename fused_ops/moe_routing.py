"""Mixture-of-experts routing: rows expanded for their experts, and the experts' results summed."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import check
from .movement import fresh
from .precision import Precision
from .registry import register


@register(
    "npu_moe_init_routing(Tensor x, Tensor row_idx, Tensor expert_idx, int active_num) "
    "-> (Tensor expanded_x, Tensor expanded_row_idx, Tensor expanded_expert_idx)",
    source="op-plugin schema, manual, host code and test: pairs sorted by expert, stable; expanded_row_idx is the "
    "inverse "
    "of that order, expanded_x holds min(rows, active_num)·K rows",
    standard="binary consistency",
)
def moe_init_routing(
    run: Precision, x: Tensor, row_idx: Tensor, expert_idx: Tensor, active_num: int
) -> tuple[Tensor, Tensor, Tensor]:
    check(x.dim() == 2, "x", x, "must have 2 dimensions")
    fits = expert_idx.dim() == 2 and expert_idx.shape[0] == x.shape[0]
    check(fits, "expert_idx", expert_idx, f"must be [{x.shape[0]}, K]")
    check(row_idx.shape == expert_idx.shape, "row_idx", row_idx, f"must have the shape {tuple(expert_idx.shape)}")
    check(active_num >= 0, "active_num", active_num, "must not be negative")
    rows, top_k = expert_idx.shape
    experts, order = expert_idx.reshape(-1).sort(stable=True)
    source = row_idx.reshape(-1).long()[order]
    position = torch.arange(source.numel(), device=source.device)
    expanded_row_idx = torch.zeros_like(position).index_copy(0, source, position).to(torch.int32)
    kept = source[: min(rows, active_num) * top_k]
    return fresh(run, x[kept % max(rows, 1)]), expanded_row_idx, experts.to(expert_idx.dtype)


@register(
    "npu_moe_finalize_routing(Tensor expanded_permuted_rows, Tensor? skip1, Tensor? skip2, Tensor? bias, "
    "Tensor? scales, Tensor expanded_src_to_dst_row, Tensor? export_for_source_row, int? drop_pad_mode=0, int? k=1) "
    "-> Tensor",
    source="op-plugin schema (which spells export_for_source_row), manual, host code and test: skip1 + skip2 + "
    "Σ scales·(row + bias of the expert), a row index of -1 adding the bias alone; drop_pad_mode 0 and 1 list the row "
    "indices by choice, 2 and 3 by row",
)
def moe_finalize_routing(
    run: Precision,
    expanded_permuted_rows: Tensor,
    skip1: Tensor | None,
    skip2: Tensor | None,
    bias: Tensor | None,
    scales: Tensor | None,
    expanded_src_to_dst_row: Tensor,
    export_for_source_row: Tensor | None,
    drop_pad_mode: int | None,
    k: int | None,
) -> Tensor:
    mode = 0 if drop_pad_mode is None else drop_pad_mode
    check(mode in {0, 1, 2, 3}, "drop_pad_mode", mode, "must be 0, 1, 2 or 3")
    pairs = expanded_src_to_dst_row.numel()
    top_k = scales.shape[1] if scales is not None else (1 if k is None else k)
    check(
        top_k > 0 and pairs % top_k == 0, "expanded_src_to_dst_row", expanded_src_to_dst_row, f"must be rows · {top_k}"
    )
    count = pairs // top_k
    table = run.up(expanded_permuted_rows).reshape(-1, expanded_permuted_rows.shape[-1])
    index = expanded_src_to_dst_row.long()
    index = index.reshape(top_k, count).t() if mode in {0, 1} else index.reshape(count, top_k)
    inside = int(index.max()) < table.shape[0] if pairs else True
    check(inside, "expanded_src_to_dst_row", expanded_src_to_dst_row, f"must lie in [-1, {table.shape[0]})")
    rows = torch.where((index >= 0).unsqueeze(-1), table[index.clamp(min=0)], 0.0)
    if bias is not None:
        check(export_for_source_row is not None, "export_for_source_row", None, "is required with bias")
        assert export_for_source_row is not None
        rows = rows + run.up(bias)[export_for_source_row.long().reshape(count, top_k)]
    if scales is not None:
        check(tuple(scales.shape) == (count, top_k), "scales", scales, f"must be [{count}, {top_k}]")
        rows = rows * run.up(scales).unsqueeze(-1)
    result = rows.sum(1)
    for name, skip in (("skip1", skip1), ("skip2", skip2)):
        if skip is not None:
            check(skip.shape == result.shape, name, skip, f"must have the result's shape {tuple(result.shape)}")
            result = result + run.up(skip)
    return run.down(result, expanded_permuted_rows.dtype)

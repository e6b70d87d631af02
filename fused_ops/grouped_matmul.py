"""Grouped matrix products in the float forms of npu_grouped_matmul."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .casts import dtype_of
from .errors import UnsupportedArgument, check
from .precision import Precision
from .registry import register

_TAIL = (
    "Tensor[]? activation_input=None, Tensor[]? activation_quant_scale=None, Tensor[]? activation_quant_offset=None, "
    "int? split_item=0, int? group_type=None, int? group_list_type=0, int? act_type=0, "
)
_HEAD = (
    "(Tensor[] x, Tensor[] weight, *, Tensor[]? bias=None, Tensor[]? scale=None, Tensor[]? offset=None, "
    "Tensor[]? antiquant_scale=None, Tensor[]? antiquant_offset=None, Tensor[]? per_token_scale=None, "
)


def _sizes(group_list: Tensor | tuple[int, ...] | None, kind: int | None) -> list[int] | None:
    """Sizes of the groups; kind 0 lists cumulative ends, 1 the sizes themselves."""
    if group_list is None:
        return None
    if kind not in {None, 0, 1}:
        raise UnsupportedArgument("group_list_type", kind, "only 0 (ends) and 1 (sizes) are implemented")
    values = [int(value) for value in (group_list.tolist() if isinstance(group_list, Tensor) else group_list)]
    if kind == 1:
        sizes = values
    else:
        sizes = [end - start for start, end in zip([0, *values], values, strict=False)]
    check(all(size >= 0 for size in sizes), "group_list", values, "must not decrease (ends) or be negative (sizes)")
    return sizes


def _rows_left_out(bound: Mapping[str, Any]) -> dict[int, str]:
    sizes = _sizes(bound["group_list"], bound["group_list_type"])
    if sizes is None or bound["group_type"] == 2 or len(bound["x"]) != 1 or bound["split_item"] not in {2, 3}:
        return {}
    rows = bound["x"][0].shape[0]
    return {0: "group_list leaves rows out, which stay undefined"} if sum(sizes) < rows else {}


@register(
    f"npu_grouped_matmul{_HEAD}Tensor? group_list=None, {_TAIL}int[]? tuning_config=None, int? output_dtype=None, "
    "int? x_dtype=None, int? weight_dtype=None, int? scale_dtype=None, int? per_token_scale_dtype=None) -> Tensor[]",
    f"npu_grouped_matmul.List{_HEAD}int[]? group_list=None, {_TAIL}ScalarType? output_dtype=None) -> Tensor[]",
    source="op-plugin schemas, manual, host code and test, the float forms: y = x·weight + bias for every group, "
    "groups "
    "along M (group_type 0), along K (2, result [groups, M, N]) or given as lists (-1)",
    inert=("tuning_config",),
    uncompared=_rows_left_out,
    uncompared_note="a single output where group_list leaves rows out",
)
def grouped_matmul(
    run: Precision,
    x: tuple[Tensor, ...],
    weight: tuple[Tensor, ...],
    bias: tuple[Tensor, ...] | None,
    group_list: Tensor | tuple[int, ...] | None,
    split_item: int | None,
    group_type: int | None,
    group_list_type: int | None,
    output_dtype: torch.dtype | int | None,
) -> list[Tensor]:
    check(len(x) > 0, "x", x, "must not be empty")
    check(len(weight) > 0, "weight", weight, "must not be empty")
    if not x[0].is_floating_point() or not weight[0].is_floating_point():
        raise UnsupportedArgument("x", x, "only the float forms are implemented")
    split = 0 if split_item is None else split_item
    check(split in {0, 1, 2, 3}, "split_item", split, "must be 0, 1, 2 or 3")
    check(group_type in {None, -1, 0, 2}, "group_type", group_type, "must be -1, 0 or 2")
    dtype = x[0].dtype if output_dtype is None else dtype_of("output_dtype", output_dtype)
    sizes = _sizes(group_list, group_list_type)
    if group_type == 2:
        check(len(x) == 1 and sizes is not None, "x", x, "must be one tensor, with a group_list, when K is split")
        assert sizes is not None
        parts = _split_k(run, x[0], weight, sizes)
        return [run.down(torch.stack(parts), dtype)] if split in {2, 3} else [run.down(part, dtype) for part in parts]
    factors = tuple(weight[0].unbind(0)) if len(weight) == 1 and weight[0].dim() == 3 else weight
    left = list(x)
    behind = 0
    if len(x) == 1 and sizes is not None:
        check(len(sizes) == len(factors), "group_list", group_list, f"must have one entry per weight, {len(factors)}")
        behind = x[0].shape[0] - sum(sizes)
        check(behind >= 0, "group_list", group_list, f"must not reach behind the {x[0].shape[0]} rows of x")
        left = list(torch.split(x[0][: sum(sizes)], sizes))
    check(len(left) == len(factors), "weight", weight, f"must hold as many matrices as x has groups, {len(left)}")
    biases = _biases(bias, len(factors))
    results = [_one(run, a, b, c) for a, b, c in zip(left, factors, biases, strict=True)]
    if split in {0, 1}:
        return [run.down(y, dtype) for y in results]
    joined = torch.cat(results)
    if behind:
        joined = torch.cat([joined, joined.new_zeros(behind, joined.shape[1])])
    return [run.down(joined, dtype)]


def _biases(bias: tuple[Tensor, ...] | None, groups: int) -> list[Tensor | None]:
    if not bias:
        return [None] * groups
    rows = list(bias[0].unbind(0)) if len(bias) == 1 and bias[0].dim() == 2 else list(bias)
    check(len(rows) == groups, "bias", bias, f"must hold {groups} vectors")
    return list(rows)


def _one(run: Precision, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    fits = weight.dim() == 2 and weight.shape[0] == x.shape[-1]
    check(fits, "weight", weight, f"must be [{x.shape[-1]}, N] for x of shape {tuple(x.shape)}")
    y = run.up(x) @ run.up(weight)
    return y if bias is None else y + run.up(bias)


def _split_k(run: Precision, x: Tensor, weight: tuple[Tensor, ...], sizes: list[int]) -> list[Tensor]:
    """Every group's columns of x [M, K] times its rows of weight [K, N]."""
    check(sum(sizes) <= x.shape[1], "group_list", sizes, f"must not reach behind the {x.shape[1]} columns of x")
    columns = torch.split(x[:, : sum(sizes)], sizes, 1)
    rows = torch.split(weight[0][: sum(sizes)], sizes) if len(weight) == 1 else weight
    check(len(rows) == len(columns), "weight", weight, f"must be one matrix or {len(columns)}")
    return [_one(run, a, b, None) for a, b in zip(columns, rows, strict=True)]

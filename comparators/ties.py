"""Index outputs: an index that differs is right iff the input value that it points to is the expected one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .dtypes import real_format
from .names import base_name, functional_name


@dataclass(frozen=True)
class _Rule:
    """Where an API keeps its index output, its `dim`, and whether each index may be used only once."""

    output: int
    dim_place: int | None
    default_dim: int | None
    once: bool = False


_RULES: Mapping[str, _Rule] = {
    "topk": _Rule(1, 2, -1, once=True),
    "sort": _Rule(1, 1, -1, once=True),
    "argsort": _Rule(0, 1, -1, once=True),
    "argmax": _Rule(0, 1, None),
    "argmin": _Rule(0, 1, None),
    "max": _Rule(1, 1, None),
    "min": _Rule(1, 1, None),
    "median": _Rule(1, 1, None),
    "nanmedian": _Rule(1, 1, None),
    "kthvalue": _Rule(1, 2, -1),
    "mode": _Rule(1, 1, -1),
    "cummax": _Rule(1, 1, None),
    "cummin": _Rule(1, 1, None),
    "npu_max": _Rule(1, 1, None),
    "npu_min": _Rule(1, 1, None),
    "npu_moe_gating_top_k_softmax": _Rule(1, None, -1, once=True),
}
_POOLS: Mapping[str, int] = {
    **{f"max_pool{n}d_with_indices": n for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": n for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d_with_indices": n for n in (1, 2, 3)},
}


def ties_explain(
    api: str, index: int, device: torch.Tensor, reference: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """For an index output that differs: empty if ties explain it, else what is wrong; None where no rule applies."""
    name = functional_name(base_name(api))
    source = args[0] if args else kwargs.get("input", kwargs.get("self", kwargs.get("x")))
    if not isinstance(source, torch.Tensor) or device.dtype.is_floating_point or device.dtype is torch.bool:
        return None
    source = source.to(device.device)
    if name in _POOLS and index == 1:
        planes = _POOLS[name]
        if source.dim() < planes:
            return None
        flat = source.flatten(source.dim() - planes)
        return _explain(flat, device.flatten(-planes), reference.flatten(-planes), -1, once=False)
    rule = _RULES.get(name)
    if rule is None or index != rule.output:
        return None
    dim = kwargs.get("dim", rule.default_dim)
    if "dim" not in kwargs and rule.dim_place is not None and len(args) > rule.dim_place:
        dim = args[rule.dim_place]
        if isinstance(dim, bool) and len(args) > rule.dim_place + 1:
            # The aten form `sort(self, stable, dim, descending)`.
            dim = args[rule.dim_place + 1]
    if dim is None:
        if name not in ("argmax", "argmin"):
            return None
        return _explain(source.reshape(-1), device.reshape(-1), reference.reshape(-1), 0, once=False)
    if not isinstance(dim, int) or isinstance(dim, bool):
        return None
    if device.dim() < source.dim():
        device, reference = device.unsqueeze(dim), reference.unsqueeze(dim)
    return _explain(source, device, reference, dim, once=rule.once)


def _explain(
    source: torch.Tensor, device: torch.Tensor, reference: torch.Tensor, dim: int, *, once: bool
) -> str | None:
    if source.dim() != device.dim():
        if source.dim() == 0:
            source = source.reshape(1)
            device, reference = device.reshape(-1), reference.reshape(-1)
        else:
            return None
    length = source.shape[dim]
    picked, expected = device.long(), reference.long()
    outside = (picked < 0) | (picked >= length)
    if bool(outside.any()):
        return f"index {int(picked[outside][0])} is outside 0..{length - 1}"
    if once:
        order = picked.sort(dim=dim).values
        if bool((order.diff(dim=dim) == 0).any()):
            return "an index is given twice"
    found, wanted = source.gather(dim, picked), source.gather(dim, expected)
    wrong = (found != wanted) & ~(_nan(found) & _nan(wanted))
    form = real_format(source.dtype)
    if form is not None and not source.is_complex():
        wide, other = found.double(), wanted.double()
        exponent = torch.frexp(other.abs()).exponent - 1
        step = torch.exp2((exponent.clamp_min(form.emin) - form.mantissa).double())
        wrong &= ~((wide - other).abs() <= step)
    if not bool(wrong.any()):
        return ""
    place = int(wrong.reshape(-1).to(torch.uint8).argmax())
    return (
        f"index {int(picked.reshape(-1)[place])} points to {found.reshape(-1)[place].item()}, "
        f"index {int(expected.reshape(-1)[place])} to {wanted.reshape(-1)[place].item()}; {int(wrong.sum())} differ"
    )


def _nan(values: torch.Tensor) -> torch.Tensor:
    return values != values

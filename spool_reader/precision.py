"""Raised precision for the CPU golden run, and the wider types that a CPU needs where a kernel is missing.

One float dtype in the call is raised one step: float16 and bfloat16 to float32, float32 to float64, complex likewise.
Several in one call all become float32 (float64 where the call has float64 already). `conv1d` and `conv2d` keep
float32, `type_as` is not raised. Float `dtype=` arguments are raised one step each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .trees import tensors

_EIGHT_BITS = tuple(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
)
LOW_PRECISION = frozenset({torch.float16, torch.bfloat16, torch.complex32, *_EIGHT_BITS})
_RAISED: Mapping[torch.dtype, torch.dtype] = {
    **dict.fromkeys((torch.float16, torch.bfloat16, *_EIGHT_BITS), torch.float32),
    torch.float32: torch.float64,
    torch.complex32: torch.complex64,
    torch.complex64: torch.complex128,
}
_TO_SINGLE = {dtype: raised for dtype, raised in _RAISED.items() if dtype in LOW_PRECISION}
_TO_DOUBLE = {
    dtype: torch.complex128 if dtype.is_complex else torch.float64
    for dtype in (*_RAISED, torch.float64, torch.complex128)
}
_NARROW_INTS = (torch.int8, torch.int16, torch.int32)

_KEEP_SINGLE = frozenset({"conv1d", "conv2d"})
_NOT_RAISED = frozenset({"type_as"})


@dataclass(frozen=True)
class Casts:
    """How the values of one run differ from the recorded ones.

    Attributes:
        dtypes: what tensors of a dtype become; a dtype that is not named stays.
        dtype_arguments: the same for values that are dtypes themselves, such as `dtype=torch.float16`.
        first: float32 tensors are rounded to this dtype before anything else, as autocast did on the device.
    """

    dtypes: Mapping[torch.dtype, torch.dtype]
    dtype_arguments: Mapping[torch.dtype, torch.dtype]
    first: torch.dtype | None = None

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor in its new dtype; the very same object where nothing changes."""
        if self.first is not None and tensor.dtype is torch.float32:
            rounded = tensor.to(self.first)
            return rounded.to(self.dtypes.get(self.first, self.first))
        wanted = self.dtypes.get(tensor.dtype)
        return tensor if wanted is None else tensor.to(wanted)


AS_RECORDED = Casts({}, {})
WIDE_INTS = Casts(dict.fromkeys(_NARROW_INTS, torch.int64), {})
IN_SINGLE = Casts({**_TO_SINGLE, **WIDE_INTS.dtypes}, _TO_SINGLE)


def golden_casts(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], rounded_to: torch.dtype | None) -> Casts:
    """The casts of the golden run of a call by its base name; `rounded_to` is what autocast rounded its inputs to."""
    if name in _NOT_RAISED:
        return AS_RECORDED
    found = {tensor.dtype for tensor in tensors((args, kwargs)) if tensor.is_floating_point() or tensor.is_complex()}
    if rounded_to is not None:
        found = {rounded_to if dtype is torch.float32 else dtype for dtype in found}
    precisions = {dtype.to_real() for dtype in found}
    if torch.float64 in precisions:
        dtypes = _TO_DOUBLE
    elif len(precisions) > 1 or name in _KEEP_SINGLE:
        dtypes = _TO_SINGLE
    else:
        dtypes = dict(_RAISED)
    return Casts(dtypes, {} if name in _KEEP_SINGLE else _RAISED, rounded_to)


def with_wide_ints(casts: Casts) -> Casts:
    """The same with narrow integers widened to int64: targets and indices of many CPU kernels must be."""
    return Casts({**casts.dtypes, **WIDE_INTS.dtypes}, casts.dtype_arguments, casts.first)


def has_narrow_ints(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether widening integers would change anything."""
    return any(tensor.dtype in _NARROW_INTS for tensor in tensors((args, kwargs)))


def has_low_precision(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a float type for which a CPU may have no kernel is among the arguments, as a tensor's or by itself."""
    if any(value in LOW_PRECISION for value in (*args, *kwargs.values()) if isinstance(value, torch.dtype)):
        return True
    return any(tensor.dtype in LOW_PRECISION for tensor in tensors((args, kwargs)))


def cast_like(tree: Any, model: Any) -> Any:
    """Tensors of `tree` in the dtypes of the corresponding ones of `model`, where both are of the same kind."""
    if isinstance(tree, torch.Tensor):
        if isinstance(model, torch.Tensor) and _kind(tree.dtype) == _kind(model.dtype):
            return tree.to(model.dtype)
        return tree
    if isinstance(tree, dict) and isinstance(model, dict):
        return {key: cast_like(item, model.get(key)) for key, item in tree.items()}
    if isinstance(tree, (tuple, list)) and isinstance(model, (tuple, list)) and len(tree) == len(model):
        items = [cast_like(item, other) for item, other in zip(tree, model, strict=True)]
        rebuild: Callable[..., Any] = type(tree)
        return rebuild(*items) if hasattr(tree, "_fields") else rebuild(items)
    return tree


def _kind(dtype: torch.dtype) -> str:
    if dtype.is_complex:
        return "complex"
    return "float" if dtype.is_floating_point else "bool" if dtype is torch.bool else "int"

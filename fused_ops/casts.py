"""Changes of dtype and of the device's private storage format."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import check
from .movement import fresh
from .precision import Precision
from .registry import register

# PyTorch's own numbering of dtypes, which integer arguments use.
_NUMBERED = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    11: torch.bool,
    15: torch.bfloat16,
}


def dtype_of(argument: str, value: torch.dtype | int) -> torch.dtype:
    """A dtype given as itself or by its number."""
    if isinstance(value, torch.dtype):
        return value
    check(value in _NUMBERED, argument, value, "must be a torch.dtype or one of PyTorch's dtype numbers")
    return _NUMBERED[value]


def _cast(run: Precision, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    # The rounding is the operation, so the golden run rounds too and only then widens.
    result = tensor.to(dtype)
    return run.down(result.clone() if result is tensor else result, dtype)


@register(
    "npu_dtype_cast(Tensor self, int dtype, int? input_dtype=None) -> Tensor",
    source="op-plugin schema and manual; Python callers give torch.dtype",
    standard="binary consistency",
)
def dtype_cast(run: Precision, self: Tensor, dtype: torch.dtype | int) -> Tensor:
    return _cast(run, self, dtype_of("dtype", dtype))


@register(
    "_npu_dtype_cast(Tensor self, ScalarType dtype) -> Tensor",
    source="op-plugin schema: the form of npu_dtype_cast that the framework calls itself",
    standard="binary consistency",
)
def framework_dtype_cast(run: Precision, self: Tensor, dtype: torch.dtype | int) -> Tensor:
    return _cast(run, self, dtype_of("dtype", dtype))


@register(
    "npu_dtype_cast_backward(Tensor grad, ScalarType dtype, int? grad_dtype=None, int? input_dtype=None) -> Tensor",
    source="op-plugin schema and derivatives: grad cast back to the input's dtype",
    standard="binary consistency",
    backward_of="npu_dtype_cast",
    # Autograd passes the forward's dtypes along; torch dtypes carry them already.
    inert=("grad_dtype", "input_dtype"),
)
def dtype_cast_backward(run: Precision, grad: Tensor, dtype: torch.dtype | int) -> Tensor:
    return _cast(run, grad, dtype_of("dtype", dtype))


@register(
    "npu_format_cast(Tensor self, int acl_format, int? customize_dtype=None) -> Tensor",
    "npu_format_cast(Tensor input, int acl_format, int? customize_dtype=None) -> Tensor",
    "npu_format_cast.Tensor(Tensor self, Tensor dst) -> Tensor",
    source="op-plugin manual and the framework's schemas: the same values in another private storage format. The manual "
    "names the tensor input, the framework's schema self; both are taken",
    standard="binary consistency",
    inert=("acl_format", "customize_dtype", "dst"),
)
def format_cast(run: Precision, self: Tensor | None = None, input: Tensor | None = None) -> Tensor:
    tensor = self if self is not None else input
    assert tensor is not None
    return fresh(run, tensor)

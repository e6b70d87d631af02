"""Tensors as a bundle stores them: only the elements that show, each once, in memory order.

A dimension of stride 0 (an expand) is stored once. A dense tensor in another order (transposed, channels-last) is stored in
its memory order without a copy, and its strides are kept, so that a replay sees the layout that the call saw. What has
gaps or overlaps is stored as its logical elements. Types that safetensors does not name are stored as a pair of reals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .errors import BundleMalformed, NotRepresentable

# torch has more types in newer versions; those that this torch lacks are left out.
_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float4_e2m1fn_x2": "F4",
}  # fmt: skip
NAME_OF: dict[torch.dtype, str] = {
    getattr(torch, ours): theirs for ours, theirs in _NAMES.items() if hasattr(torch, ours)
}
DTYPE_OF: dict[object, torch.dtype] = {theirs: dtype for dtype, theirs in NAME_OF.items()}
# Two numbers an element: safetensors counts the numbers, torch the elements.
PACKED: Any = getattr(torch, "float4_e2m1fn_x2", None)
# Stored as pairs of these, the true type in the reference.
PAIRS = {torch.complex128: torch.float64, torch.complex32: torch.float16}
_PAIR_NAMES = {str(dtype).removeprefix("torch."): dtype for dtype in PAIRS}
_PLAIN = (Tensor, torch.nn.Parameter)
MAX_DIM = 64


@dataclass(frozen=True)
class LocalShard:
    """This rank's part of a distributed tensor, and how the whole is placed, as text such as `(Shard(dim=0),)`."""

    tensor: Tensor
    placements: str

    @classmethod
    def of(cls, tensor: Tensor) -> LocalShard | None:
        """The part of a DTensor; None for every other kind of tensor."""
        kind = type(tensor)
        if kind.__name__ != "DTensor" or not kind.__module__.startswith("torch.distributed"):
            return None
        return cls(tensor.to_local(), str(tensor.placements))  # type: ignore[attr-defined]


@dataclass
class TensorSink:
    """Collects the tensors of one call; `add` answers with the reference that goes into the tree."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    _seen: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    _alive: list[Tensor] = field(default_factory=list)

    def add(self, value: Tensor | LocalShard, path: str) -> dict[str, Any]:
        """Store a tensor unless the same elements are there, and refer to it; NotRepresentable for kinds without data."""
        placements = None
        if type(value) not in _PLAIN:
            shard = value if isinstance(value, LocalShard) else LocalShard.of(value)
            if shard is None:
                # Other subclasses have a meaning that their data alone lose.
                raise NotRepresentable(f"{type(value).__module__}.{type(value).__qualname__}", path)
            value, placements = shard.tensor, shard.placements
        assert isinstance(value, Tensor)
        tensor = value
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta or tensor.is_nested:
            named = {"quantized": tensor.is_quantized, "meta": tensor.is_meta, "nested": tensor.is_nested}
            kind = next((name for name, found in named.items() if found), str(tensor.layout))
            raise NotRepresentable(f"Tensor ({kind})", path)
        requires_grad = tensor.requires_grad
        tensor = tensor.detach()
        try:
            address = tensor.data_ptr()
        except RuntimeError:
            # Inside torch.func transforms a tensor stands for a batch and has no storage of its own.
            raise NotRepresentable("Tensor (without storage)", path) from None
        same = (address, tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg())
        reference = self._seen.get(same)
        if reference is None:
            # The entry holds only as long as nobody else can get this address: keep the tensor alive with it.
            self._alive.append(tensor)
            reference = self._store(tensor, path)
            self._seen[same] = reference
        if requires_grad or placements:
            reference = dict(reference)
            if requires_grad:
                reference["requires_grad"] = True
            if placements:
                reference["placements"] = placements
        return reference

    def _store(self, tensor: Tensor, path: str) -> dict[str, Any]:
        name = str(len(self.tensors))
        reference: dict[str, Any] = {"$tensor": name}
        shape, stride = list(tensor.shape), list(tensor.stride())
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
            stride = list(tensor.stride())
        if not tensor.is_contiguous():
            tensor, stride = _compact(tensor)
            if stride != _contiguous_stride(shape):
                reference["shape"], reference["stride"] = shape, stride
        if tensor.dtype in PAIRS:
            reference["dtype"] = str(tensor.dtype).removeprefix("torch.")
            tensor = torch.view_as_real(tensor)
        elif tensor.dtype not in NAME_OF:
            raise NotRepresentable(f"Tensor ({tensor.dtype})", path)
        elif tensor.dtype is PACKED and not shape:
            # Its two numbers need a dimension in the file.
            reference["shape"], reference["stride"] = [], []
            tensor = tensor.view(1)
        self.tensors[name] = tensor.cpu() if tensor.device.type != "cpu" else tensor
        return reference


def restore(reference: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Tensor:
    """The tensor that a reference stands for, over the stored elements; BundleMalformed when it would leave them."""
    name = reference["$tensor"]
    tensor = tensors.get(name) if isinstance(name, str) else None
    if tensor is None:
        raise BundleMalformed(f"the tree refers to tensor {name!r}, which the file does not hold")
    if "dtype" in reference:
        wanted = _PAIR_NAMES.get(reference["dtype"]) if isinstance(reference["dtype"], str) else None
        if wanted is None or tensor.dtype is not PAIRS[wanted] or not tensor.dim() or tensor.shape[-1] != 2:
            raise BundleMalformed(f"tensor {name!r} does not store pairs for dtype {reference['dtype']!r}")
        if tensor.data_ptr() % (2 * tensor.element_size()):
            tensor = tensor.clone()
        tensor = torch.view_as_complex(tensor)
    if "stride" in reference:
        shape, stride = _sizes(reference.get("shape"), name), _sizes(reference["stride"], name)
        reach = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=False))
        if len(shape) != len(stride) or (0 not in shape and reach > tensor.numel()):
            raise BundleMalformed(
                f"tensor {name!r}: shape {shape} and stride {stride} leave its {tensor.numel()} elements"
            )
        tensor = tensor.as_strided(shape, stride)
    if reference.get("requires_grad") is True and (tensor.is_floating_point() or tensor.is_complex()):
        tensor = tensor.detach().requires_grad_()
    return tensor


def _sizes(value: Any, name: str) -> list[int]:
    if (
        not isinstance(value, list)
        or len(value) > MAX_DIM
        or not all(type(size) is int and 0 <= size < 2**48 for size in value)
    ):
        raise BundleMalformed(f"tensor {name!r}: {value!r} is no list of sizes")
    return value


def _contiguous_stride(shape: list[int]) -> list[int]:
    stride, step = [0] * len(shape), 1
    for dim in range(len(shape) - 1, -1, -1):
        stride[dim] = step
        step *= max(shape[dim], 1)
    return stride


def _compact(tensor: Tensor) -> tuple[Tensor, list[int]]:
    """The elements that `tensor` shows, contiguous in memory order, and the strides that restore its layout over them."""
    shape, stride = list(tensor.shape), list(tensor.stride())
    if tensor.numel() == 0:
        return tensor.contiguous(), _contiguous_stride(shape)
    for dim, step in enumerate(stride):
        if step == 0 and shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    order = sorted(range(tensor.dim()), key=lambda dim: (-stride[dim], dim))
    in_memory = tensor.permute(order)
    if not in_memory.is_contiguous():
        in_memory = in_memory.contiguous() if _regular(tensor) else tensor.contiguous()
        if not _regular(tensor):
            order = list(range(tensor.dim()))
    restored, step = [0] * tensor.dim(), 1
    for dim in reversed(order):
        restored[dim] = 0 if stride[dim] == 0 and shape[dim] > 1 else step
        step *= tensor.shape[dim]
    return in_memory, restored


def _regular(tensor: Tensor) -> bool:
    """Whether the dimensions nest (each stride covers all smaller ones), so that their order in memory means something."""
    reach = 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if step <= reach:
                return False
            reach += step * (size - 1)
    return True


def nbytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements."""
    return math.prod(tensor.shape) * tensor.element_size()

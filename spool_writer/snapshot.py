"""Copies of what a call was given and returned, taken on the training thread: nobody can change them afterwards.

A copy keeps dtype, shape and layout, holds only the elements that show (a dimension of stride 0 once), and has no part in the
autograd graph. Copies run with function and dispatch modes off, so that neither we nor anybody else records them.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from spool import LocalShard

from .device import HostCopies
from .pool import Pool

_DisableTorchFunction: Any = torch._C.DisableTorchFunction
_DisableTorchDispatch: Any = torch._C._DisableTorchDispatch
_AutoDispatchBelowAutograd: Any = torch._C._AutoDispatchBelowAutograd
# Neither quantised nor of a kind that is copied in another way.
_ORDINARY = frozenset(
    {torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.bool, torch.uint8}
)
_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_SCALARS = (int, float, bool, str, type(None), torch.dtype, torch.device, type(...))
_KEPT_AS_THEY_ARE = frozenset(_SCALARS)


class unseen:
    """No function mode, no dispatch mode and no graph see what happens inside."""

    __slots__ = ("_autograd", "_dispatch", "_functions")

    def __enter__(self) -> None:
        # Guards of the dispatcher: on from their making until they are deleted, in reverse order.
        self._functions = _DisableTorchFunction()
        self._functions.__enter__()
        self._dispatch = _DisableTorchDispatch()
        self._autograd = _AutoDispatchBelowAutograd()

    def __exit__(self, *error: object) -> None:
        del self._autograd
        del self._dispatch
        self._functions.__exit__(*error)


class Snapshots:
    """The copies made at one moment of one call; the same tensor is copied once.

    With `grad`, copies say like their originals whether gradients are wanted.
    """

    def __init__(self, pool: Pool, *, grad: bool) -> None:
        self._copier, self._grad = HostCopies(pool), grad
        self._copies: dict[int, Tensor] = {}
        self._held: list[Tensor] = []
        self.nbytes = 0

    def of(self, value: Any) -> Any:
        """`value` with every tensor replaced by its copy, in containers of the same kinds; use inside `unseen`."""
        kind = type(value)
        if kind in _PLAIN:
            return self._copy(value)
        if kind in _KEPT_AS_THEY_ARE:
            return value
        if isinstance(value, Tensor):
            return self._copy_of_subclass(value)
        if kind is tuple or kind is list:
            return kind([self.of(item) for item in value])
        if isinstance(value, tuple):
            items = [self.of(item) for item in value]
            return kind(*items) if hasattr(kind, "_fields") else kind(items)
        if kind in (dict, OrderedDict, defaultdict):
            return {key: self.of(item) for key, item in value.items()}
        if kind is slice:
            return slice(self.of(value.start), self.of(value.stop), self.of(value.step))
        return value

    def events(self) -> tuple[Any, ...]:
        """What must be waited for before the copies are read; ask once all are made."""
        return self._copier.events()

    def _copy_of_subclass(self, value: Tensor) -> Any:
        """A distributed tensor's local part is copied; others the bundle will name and refuse."""
        shard = LocalShard.of(value)
        return value if shard is None else LocalShard(self._copy(shard.tensor), shard.placements)

    def _copy(self, tensor: Tensor) -> Tensor:
        copy = self._copies.get(id(tensor))
        if copy is None:
            copy = self._copier.copy(tensor) if _is_ordinary(tensor) else _copy(tensor, self._copier)
            if self._grad and tensor.requires_grad:
                copy.requires_grad_()
            self._copies[id(tensor)] = copy
            # The number stands for this tensor only while it lives.
            self._held.append(tensor)
            if copy is not tensor:
                self.nbytes += copy.nbytes
        return copy


def _is_ordinary(tensor: Tensor) -> bool:
    kind = tensor.dtype in _ORDINARY and tensor.layout is torch.strided and not (tensor.is_meta or tensor.is_nested)
    return kind and tensor.is_contiguous()


def _copy(tensor: Tensor, copier: HostCopies) -> Tensor:
    source = tensor
    if source.layout is not torch.strided or source.is_quantized or source.is_meta or source.is_nested:
        # The bundle refuses these by their kind; nothing is read from them.
        return source
    stride = source.stride()
    if 0 in stride and source.numel() > 1:
        shape = source.shape
        for dim, step in enumerate(stride):
            if step == 0 and shape[dim] > 1:
                source = source.narrow(dim, 0, 1)
        return copier.copy(source).expand(shape)
    return copier.copy(source)


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in a value, depth first."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)


def storages(value: Any) -> set[int]:
    """Addresses of the memory that the tensors in a value are views of."""
    return {
        tensor.untyped_storage().data_ptr()
        for tensor in tensors(value)
        if type(tensor) in _PLAIN and tensor.layout is torch.strided and tensor.numel()
    }


def versions(values: Iterable[Any], into: list[tuple[Tensor, int]]) -> None:
    """Add the version counters of the tensors in `values`: what grew during the call was written to."""
    for value in values:
        kind = type(value)
        if kind in _KEPT_AS_THEY_ARE:
            continue
        for tensor in (value,) if kind in _PLAIN else tensors(value):
            if not tensor.is_inference():
                into.append((tensor, tensor._version))

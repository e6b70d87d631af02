"""The arguments of one run: moved, cast, and copied where the call may write to them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import torch

from .device import Device
from .precision import LOW_PRECISION, Casts
from .trees import map_leaves, named_leaves

_TAKES_DEVICE_FIRST = frozenset({"to", "type"})
# Dunders that begin as the augmented ones do and write nothing.
_NOT_AUGMENTED = frozenset({"__int__", "__index__", "__invert__"})
_LISTED = 40
_VALUE_WIDTH = 80


# Their kernels on accelerators read half and write float32, or the reverse; those of the CPU do neither.
_HALF_TO_FLOAT = frozenset({"_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"})


@dataclass(frozen=True)
class Arguments:
    """Arguments for one run.

    Attributes:
        args, kwargs: what the call is given.
        shared: tensors among them that are the bundle's own, each with its version: the run must leave them alone.
        rewritten: the call is given in another form, whose result has the dtype of its float inputs.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shared: list[tuple[torch.Tensor, int]]
    rewritten: bool = False

    def untouched(self) -> bool:
        """Whether the run wrote to nothing of the bundle's."""
        return all(tensor._version == version for tensor, version in self.shared)


def prepared(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], device: Device, casts: Casts, *, writes: bool
) -> Arguments:
    """The recorded arguments on `device`, under `casts`; a tensor that stands in two places stays one tensor.

    With `writes` nothing is shared with the bundle.
    """
    moved: dict[int, torch.Tensor] = {}
    shared: list[tuple[torch.Tensor, int]] = []

    def change(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            done = moved.get(id(leaf))
            if done is None:
                done = casts(device.place(leaf))
                if done is leaf:
                    if writes:
                        done = leaf.detach().clone()
                    else:
                        shared.append((leaf, leaf._version))
                moved[id(leaf)] = done
            return done
        if isinstance(leaf, torch.dtype):
            return casts.dtype_arguments.get(leaf, leaf)
        return device.torch if isinstance(leaf, torch.device) else leaf

    new_args = map_leaves(change, args)
    new_kwargs = map_leaves(change, kwargs)
    if new_kwargs.get("device") is not None:
        new_kwargs["device"] = device.torch
    if name in _TAKES_DEVICE_FIRST and len(new_args) > 1 and _names_device(new_args[1]):
        new_args = (new_args[0], device.torch, *new_args[2:])
    if device.is_cpu and name in _HALF_TO_FLOAT:
        plain = _without_half_to_float(name, new_args)
        return Arguments(plain, new_kwargs, shared, rewritten=plain is not new_args)
    return Arguments(new_args, new_kwargs, shared)


def may_write(name: str, kwargs: dict[str, Any]) -> bool:
    """Whether a call by this base name is one that writes to its arguments."""
    inplace = name.endswith("_") and not name.endswith("__")
    augmented = name.startswith("__i") and name.endswith("__") and name not in _NOT_AUGMENTED
    outs = kwargs.get("out") is not None or kwargs.get("inplace") is True
    return inplace or augmented or outs or name == "__setitem__"


def argument_list(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
    """The first arguments of a call for its row: [path, dtype, shape] of a tensor, [path, value as text] of anything else."""
    named = chain(named_leaves(args, "args"), named_leaves(kwargs, "kwargs"))
    found: list[list[Any]] = []
    for path, leaf in islice(named, _LISTED):
        if isinstance(leaf, torch.Tensor):
            found.append([path, str(leaf.dtype).removeprefix("torch."), list(leaf.shape)])
        else:
            found.append([path, repr(leaf)[:_VALUE_WIDTH]])
    return found


def _without_half_to_float(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same softmax without the step between half and float32 that accelerators fuse into it."""
    if name.endswith("_backward_data"):
        grad = args[0]
        return args if len(args) < 4 or args[3] is grad.dtype else (*args[:3], grad.dtype)
    if len(args) < 3 or args[2] is not True:
        return args
    x = args[0]
    return (x.float() if x.dtype in LOW_PRECISION else x, args[1], False)


def _names_device(value: Any) -> bool:
    """Whether a positional argument is a device by name or number; `x.to("npu:0")`."""
    return isinstance(value, (str, int)) and not isinstance(value, bool) and not str(value).startswith("torch.")

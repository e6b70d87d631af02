"""Which calls may be run again, and what each name stands for.

A bundle names its call as `Type.base.number`. The name is looked up in tables that are made here from torch's own list
of overridable functions, from the dispatcher's `aten` operators and from `fused_ops`; nothing that a file names is
ever imported, reached through an attribute path or executed outside these tables.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch.overrides import get_ignored_functions, get_overridable_functions

import fused_ops
from spool import NotReplayable

from .call_names import CREATORS, DUNDERS, NATIVE, NO_REFERENCE, WHY_REFUSED

_API = re.compile(r"(?P<type>[A-Z][A-Za-z]*)\.(?P<base>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\.(?P<number>\d+)", re.ASCII)

# Moving to a device is replayed as staying on the replay device.
_MOVES = ("cuda", "npu", "xpu")


@dataclass(frozen=True)
class Target:
    """A call that may be replayed.

    Attributes:
        kind: first part of the API name, such as `Torch`.
        base: the middle of it, such as `linalg.norm` or `add_`.
        call: what runs it.
        fused: the fused operator's reference, which also knows a golden form and returns what the device writes.
    """

    kind: str
    base: str
    call: Callable[..., Any]
    fused: fused_ops.FusedOp | None = None

    @property
    def name(self) -> str:
        """The last part of the base name: `norm` of `linalg.norm`; for `Aten` the operator without its overload."""
        return self.base.split(".")[0] if self.kind == "Aten" else self.base.rsplit(".", 1)[-1]


def resolve(api: str) -> Target:
    """The call that an API name stands for; NotReplayable, with the reason, for everything outside the tables."""
    match = _API.fullmatch(api)
    if match is None:
        raise NotReplayable(f"not an API name: {api[:100]!r}")
    return _resolve(match["type"], match["base"])


@functools.cache
def known_bases() -> frozenset[str]:
    """Every base name that some API name may have: `mul`, `linalg.norm`, `npu_rms_norm`, …"""
    listed = (base for table in _tables().values() for base in table)
    return frozenset([*listed, *_aten_table(), *fused_ops.names()])


@functools.lru_cache(maxsize=4096)
def _resolve(kind: str, base: str) -> Target:
    if kind in NO_REFERENCE:
        raise NotReplayable(f"{kind}.{base}: {NO_REFERENCE[kind]}")
    if kind == "NPU":
        return _fused(base)
    if kind == "Aten":
        return _aten(base)
    if kind not in _tables():
        raise NotReplayable(f"unknown API {kind}.{base}: no such type of call")
    why = WHY_REFUSED.get(base.rsplit(".", 1)[-1])
    if why is not None:
        raise NotReplayable(f"not replayable: {kind}.{base} {why}")
    call = _tables()[kind].get(base)
    if call is None:
        raise NotReplayable(f"unknown API {kind}.{base}: torch {torch.__version__} has no such replayable call")
    return Target(kind, base, call)


def _fused(base: str) -> Target:
    try:
        operator = fused_ops.reference(base)
    except fused_ops.UnknownFusedOp as exc:
        raise NotReplayable(f"not replayable (no reference for NPU.{base}): {exc}") from exc
    return Target("NPU", base, operator, operator)


def _aten(base: str) -> Target:
    name, _, overload = base.partition(".")
    why = WHY_REFUSED.get(name)
    if why is not None or name.startswith("_test_"):
        raise NotReplayable(f"not replayable: Aten.{base} {why or 'is for tests'}")
    overloads = _aten_table().get(name)
    if overloads is None or (overload and overload not in overloads):
        raise NotReplayable(f"unknown API Aten.{base}: torch {torch.__version__} has no such operator")
    packet = getattr(torch.ops.aten, name)
    return Target("Aten", base, getattr(packet, overload) if overload else packet)


@functools.cache
def _aten_table() -> dict[str, frozenset[str]]:
    """Operators of the dispatcher, each with its overloads; TorchScript's own (`aten::save`, …) are not among them."""
    found: dict[str, set[str]] = {}
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = full.partition("::")
        if namespace == "aten":
            name, _, overload = rest.partition(".")
            found.setdefault(name, set()).add(overload or "default")
    return {name: frozenset(overloads) for name, overloads in found.items()}


@functools.cache
def _tables() -> dict[str, dict[str, Callable[..., Any]]]:
    known = get_overridable_functions()
    overridable = {id(function) for functions in known.values() for function in functions}
    creators = {id(function) for function in get_ignored_functions() if _simple_name(function) in CREATORS}
    allowed = overridable | creators
    tensor = dict(_tensor_methods(allowed, known[torch.Tensor]))
    tensor.update((name, _stay) for name in _MOVES)
    functional = dict(_functions(torch.nn.functional, allowed, known[torch.nn.functional]))
    plain = dict(_functions(torch, allowed, [*known[torch], *known[torch.functional]]))
    for space in (torch.linalg, torch.fft, torch.special):
        prefix = space.__name__.rsplit(".", 1)[-1]
        for name, function in _functions(space, allowed, known[space]):
            plain[f"{prefix}.{name.removeprefix(prefix + '_')}"] = function
            plain[f"{prefix}_{name.removeprefix(prefix + '_')}"] = function
    return {"Tensor": tensor, "Functional": functional, "Torch": plain}


def _stay(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`x.cuda()` and its like: the value is the same on whichever device the call is replayed."""
    return tensor.clone()


def _simple_name(function: object) -> str:
    return str(getattr(function, "__name__", ""))


def _tensor_methods(allowed: set[int], listed: Iterable[Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    named = {_simple_name(function) for function in listed}
    for name in dir(torch.Tensor):
        if name.startswith("__") and name not in DUNDERS:
            continue
        function = getattr(torch.Tensor, name, None)
        if callable(function) and (name in named or id(function) in allowed or name in DUNDERS or name in CREATORS):
            yield name, function


def _functions(space: ModuleType, allowed: set[int], listed: Iterable[Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions of one namespace, under the names that they have in it."""
    for function in listed:
        name = _simple_name(function)
        if name and not name.startswith("__") and not isinstance(function, type):
            yield name, function
    native = torch._C._VariableFunctions
    for name in dir(space):
        function = getattr(space, name, None)
        if name.startswith("__") or not callable(function) or isinstance(function, type):
            continue
        # In-place forms and optimiser steps over lists of tensors: torch's list leaves them out, yet they compute.
        written = name.endswith("_") and getattr(space, name[:-1], None) is not None
        many = name.startswith(("_foreach_", "_fused_")) and hasattr(native, name)
        if id(function) in allowed or written or many or name in NATIVE:
            yield name, function

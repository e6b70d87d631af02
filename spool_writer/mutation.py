"""Which arguments a call writes to, decided before it runs: these are copied before the call, the others after it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

# An argument's place: its position, or its keyword.
Argument = int | str
_IN_PLACE_DUNDERS = frozenset(
    f"__i{name}__" for name in "add sub mul div truediv floordiv mod pow and or xor lshift rshift matmul".split()
) | {"__setitem__"}


def written_arguments(
    function: Callable[..., Any], base: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Argument]:
    """Places of the arguments that this call may write to, in order."""
    places = _by_name(function, base)
    if places is _NONE and base not in _STATEFUL and "out" not in kwargs and base not in _with_inplace():
        return []
    found: list[Argument] = [place for place in places if _is_given(place, args, kwargs)]
    if kwargs.get("out") is not None:
        found.append("out")
    position = _with_inplace().get(base)
    if position is not None and _value("inplace", position, args, kwargs) is True:
        found.append(0 if args else "input")
    for name, place in _STATEFUL.get(base, _no_state)(args, kwargs):
        if _value(name, place, args, kwargs) is not None:
            found.append(place if len(args) > place else name)
    return list(dict.fromkeys(found))


def _is_given(place: Argument, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return place < len(args) if isinstance(place, int) else place in kwargs


def _value(name: str, place: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return args[place] if len(args) > place else kwargs.get(name)


_NONE: tuple[Argument, ...] = ()
# Vendor operators that write to arguments which their schema does not mark.
_UNMARKED: dict[str, tuple[Argument, ...]] = {"npu_apply_rotary_pos_emb": (0, 1, "query", "key")}


@functools.lru_cache(maxsize=8192)
def _by_name(function: Callable[..., Any], base: str) -> tuple[Argument, ...]:
    """What the name or the schema of a function says; the same for all its calls."""
    if base in _UNMARKED:
        return _UNMARKED[base]
    if isinstance(function, OpOverload):
        return _of_schemas([function._schema])
    if isinstance(function, OpOverloadPacket):
        return _of_schemas([getattr(function, name)._schema for name in function.overloads()])
    if base in _IN_PLACE_DUNDERS:
        return (0,)
    if base.endswith("_") and not base.endswith("__"):
        packet = getattr(torch.ops.aten, base, None)
        if isinstance(packet, OpOverloadPacket):
            return _of_schemas([getattr(packet, name)._schema for name in packet.overloads()]) or (0,)
        return (0, "input")
    return _NONE


def _of_schemas(schemas: list[Any]) -> tuple[Argument, ...]:
    """Positions (and names, for keyword use) that any of the overloads writes to."""
    places: dict[Argument, None] = {}
    for schema in schemas:
        for position, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                if not argument.kwarg_only:
                    places[position] = None
                places[argument.name] = None
    return tuple(places)


@functools.cache
def _with_inplace() -> dict[str, int]:
    """Functions of torch.nn.functional with an `inplace` switch → its position."""
    found = {}
    for base, function in vars(torch.nn.functional).items():
        if inspect.isfunction(function):
            names = list(inspect.signature(function).parameters)
            if "inplace" in names:
                found[base] = names.index("inplace")
    return found


State = Callable[[tuple[Any, ...], Mapping[str, Any]], list[tuple[str, int]]]


def _no_state(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, int]]:
    return []


def _running(mean: int, switch: str, place: int, default: bool) -> State:
    """Running statistics that are written only while `switch` is on."""

    def state(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, int]]:
        on = args[place] if len(args) > place else kwargs.get(switch, default)
        return [("running_mean", mean), ("running_var", mean + 1)] if on else []

    return state


def _embedding_state(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, int]]:
    return [("weight", 1)] if _value("max_norm", 3, args, kwargs) is not None else []


# Functions whose name says nothing of what they write.
_STATEFUL: dict[str, State] = {
    "batch_norm": lambda args, kwargs: _batch_norm(args, kwargs),
    "instance_norm": lambda args, kwargs: _instance_norm(args, kwargs),
    # Operators whose schemas do not say that they write the running statistics.
    **dict.fromkeys(
        ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"),
        lambda args, kwargs: _operator_norm(args, kwargs),
    ),
    "embedding": _embedding_state,
    "embedding_bag": lambda args, kwargs: _embedding_state(args, kwargs),
}


def _batch_norm(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, int]]:
    """F.batch_norm has (input, mean, var, …), torch.batch_norm with its nine arguments (input, weight, bias, mean, var, …)."""
    functional = len(args) < 9 or "running_mean" in kwargs
    return _running(1 if functional else 3, "training", 5, False)(args, kwargs)


def _operator_norm(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, int]]:
    return _running(3, "training", 5, False)(args, kwargs)


def _instance_norm(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[str, int]]:
    functional = len(args) < 9 or "running_mean" in kwargs
    return _running(1 if functional else 3, "use_input_stats", 5, True)(args, kwargs)

"""Values of one call, bound to the arguments of an official schema."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .errors import InvalidArgument, UnsupportedArgument, describe
from .schema import Argument, Schema


@dataclass(frozen=True)
class Bound:
    """The arguments of one call by schema name, and where in the call each given one stood."""

    schema: Schema
    values: dict[str, Any]
    places: dict[str, str]


def bind(schemas: Sequence[Schema], args: Sequence[Any], kwargs: Mapping[str, Any], extras: Mapping[str, Any]) -> Bound:
    """Bind a call to the first overload that takes it.

    `extras` are documented arguments of other releases with their defaults: at its default one is ignored, any other
    value is not supported.
    """
    kwargs = dict(kwargs)
    for name in [name for name in kwargs if name in extras]:
        value = kwargs.pop(name)
        if not same_value(value, extras[name]):
            raise UnsupportedArgument(name, describe(value), f"only its default {extras[name]!r} is implemented")
    error: InvalidArgument | UnsupportedArgument | None = None
    for schema in schemas:
        try:
            return _bind_one(schema, args, kwargs)
        except (InvalidArgument, UnsupportedArgument) as exc:
            error = error or exc
    assert error is not None
    raise error


def _bind_one(schema: Schema, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Bound:
    given: dict[str, Any] = {}
    places: dict[str, str] = {}
    # Optimiser operators are also called with the tensors they write as the last positional arguments.
    order = [*schema.positional, *schema.outs]
    if len(args) > len(order):
        raise UnsupportedArgument(
            f"argument {len(order) + 1}", describe(args[len(order)]), f"{schema.name} takes {len(order)} by position"
        )
    for index, (argument, value) in enumerate(zip(order, args, strict=False)):
        given[argument.name], places[argument.name] = value, f"args[{index}]"
    known = {argument.name for argument in schema.arguments}
    for name, value in kwargs.items():
        targets, values, paths = [name], [value], [f"kwargs.{name}"]
        if name == "out" and name not in known and schema.outs:
            targets, values, paths = _spread_out(schema, value)
        for target, item, path in zip(targets, values, paths, strict=True):
            if target not in known:
                raise UnsupportedArgument(target, describe(item), f"{schema.name} has no such argument")
            if target in given:
                raise InvalidArgument(target, describe(item), "given twice, by position and by keyword")
            given[target], places[target] = item, path
    bound: dict[str, Any] = {}
    for argument in schema.arguments:
        if argument.name in given:
            bound[argument.name] = convert(argument, given[argument.name])
        elif argument.required:
            raise InvalidArgument(argument.name, "not given", f"{schema.name} requires it")
        else:
            bound[argument.name] = argument.default
    return Bound(schema, bound, places)


def _spread_out(schema: Schema, value: Any) -> tuple[list[str], list[Any], list[str]]:
    names = [argument.name for argument in schema.outs]
    if not isinstance(value, (tuple, list)) or len(value) != len(names):
        raise InvalidArgument("out", describe(value), f"a tuple of {len(names)} tensors ({', '.join(names)})")
    return names, list(value), ["kwargs.out"] * len(names)


def same_value(value: Any, default: Any) -> bool:
    """Whether a given value is the default; tensors never are."""
    if isinstance(value, torch.Tensor) or isinstance(default, torch.Tensor):
        return value is default
    if isinstance(value, (list, tuple)) and isinstance(default, (list, tuple)):
        return tuple(value) == tuple(default)
    return bool(value == default)


def convert(argument: Argument, value: Any) -> Any:
    """The value in the form that definitions expect: numbers plain, lists as tuples."""
    kind = argument.type
    if value is None:
        if kind.endswith("?"):
            return None
        raise InvalidArgument(argument.name, "None", f"must be a {kind}")
    kind = kind.removesuffix("?")
    element, bracket, count = kind.partition("[")
    if not bracket:
        return _CONVERTERS[element](argument, value)
    size = int(count.removesuffix("]")) if count != "]" else 0
    if size and not isinstance(value, (list, tuple, torch.Size)):
        value = (value,) * size
    if not isinstance(value, (list, tuple, torch.Size)):
        raise InvalidArgument(argument.name, describe(value), f"must be a list ({kind})")
    if size and len(value) not in {0, size}:
        raise InvalidArgument(argument.name, describe(value), f"must hold {size} values")
    return tuple(_CONVERTERS[element](argument, item) for item in value)


def _tensor(argument: Argument, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise InvalidArgument(argument.name, describe(value), "must be a tensor")
    return value


def _number(argument: Argument, value: Any) -> Any:
    # Python numbers, numpy scalars and one-element tensors are all seen in real calls.
    plain = (
        value.item()
        if hasattr(value, "item") and getattr(value, "size", None) is not None and _single(value)
        else value
    )
    if not isinstance(plain, (bool, numbers.Number)) or isinstance(plain, torch.Tensor):
        raise InvalidArgument(argument.name, describe(value), "must be a number or a one-element tensor")
    return plain


def _single(value: Any) -> bool:
    return bool(value.numel() == 1) if isinstance(value, torch.Tensor) else bool(value.size == 1)


def _float(argument: Argument, value: Any) -> float:
    return float(_number(argument, value))


def _int(argument: Argument, value: Any) -> Any:
    # Schemas number dtypes where Python callers give the dtype itself.
    if isinstance(value, torch.dtype) and argument.name.endswith("dtype"):
        return value
    plain = _number(argument, value)
    if plain != int(plain):
        raise InvalidArgument(argument.name, describe(value), "must be a whole number")
    return int(plain)


def _bool(argument: Argument, value: Any) -> bool:
    plain = _number(argument, value)
    if plain not in {0, 1}:
        raise InvalidArgument(argument.name, describe(value), "must be True or False")
    return bool(plain)


def _str(argument: Argument, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(argument.name, describe(value), "must be a string")
    return value


def _dtype(argument: Argument, value: Any) -> torch.dtype | int:
    if isinstance(value, (torch.dtype, int)):
        return value
    raise InvalidArgument(argument.name, describe(value), "must be a torch.dtype or its number")


def _as_given(argument: Argument, value: Any) -> Any:
    return value


_CONVERTERS: dict[str, Callable[[Argument, Any], Any]] = {
    "Tensor": _tensor,
    "Scalar": _number,
    "float": _float,
    "int": _int,
    "bool": _bool,
    "str": _str,
    "ScalarType": _dtype,
    "Layout": _as_given,
    "Device": _as_given,
}

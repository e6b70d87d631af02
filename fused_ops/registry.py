"""The table of references, and how a reference gets into it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from .errors import UnknownFusedOp
from .operator import FusedOp, Uncompared
from .schema import Schema, parse_schema

_TABLE: dict[str, FusedOp] = {}
Definition = TypeVar("Definition", bound=Callable[..., Any])


def reference(name: str) -> FusedOp:
    """The reference of `name`, which may carry an overload (`npu_apply_adam.out`)."""
    found = _TABLE.get(name) or _TABLE.get(name.partition(".")[0])
    if found is None:
        raise UnknownFusedOp(name, _TABLE)
    return found


def names() -> list[str]:
    """Every registered name, sorted."""
    return sorted(_TABLE)


def register(
    *schemas: str,
    source: str,
    aliases: Collection[str] = (),
    standard: str = "benchmark",
    deterministic: bool = True,
    backward_of: str | None = None,
    uncompared: Uncompared | None = None,
    uncompared_note: str = "",
    inert: Collection[str] = (),
    extras: Mapping[str, Any] | None = None,
    writes: Mapping[str, int] | None = None,
    replace: bool = False,
) -> Callable[[Definition], Definition]:
    """Decorator that registers a definition under its schema's name and the aliases.

    The definition takes a `Precision` and then, by name (or all in one `**arguments`), those schema arguments that it
    implements: it calls
    `precision.up` on float inputs before and `precision.down(value, dtype)` on results after computing, and raises
    `InvalidArgument` for bad input. A schema argument that it does not take is "not supported" unless it has its
    default or is named in `inert`. A name that is taken already needs `replace=True`.
    """
    parsed = tuple(parse_schema(text) for text in schemas)

    def enter(definition: Definition) -> Definition:
        _check_definition(parsed, definition, inert)
        for name in (parsed[0].name, *aliases):
            if name in _TABLE and not replace:
                raise ValueError(f"a reference for {name} is registered already; replace=True replaces it")
            _TABLE[name] = FusedOp(
                name=name,
                schemas=parsed,
                source=source,
                definition=definition,
                standard=standard,
                deterministic=deterministic,
                backward_of=backward_of,
                undefined={} if uncompared is None else uncompared,
                uncompared_note=uncompared_note,
                inert=frozenset(inert),
                extras=dict(extras or {}),
                writes=dict(writes or {}),
            )
        return definition

    return enter


def _check_definition(schemas: tuple[Schema, ...], definition: Callable[..., Any], inert: Collection[str]) -> None:
    """A misspelt argument must fail at registration, not at the first call."""
    if not schemas:
        raise ValueError("register needs the official schema text")
    first, *parameters = inspect.signature(definition).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    taken = [parameter.name for parameter in parameters]
    known = {argument.name for schema in schemas for argument in schema.arguments}
    for name in [*taken, *inert]:
        if name not in known:
            raise ValueError(f"{schemas[0].name}: {name} is no argument of {schemas[0].text}")
    implemented = {*taken, *inert}
    for argument in schemas[0].arguments:
        if argument.required and argument.name not in implemented and not argument.written:
            raise ValueError(
                f"{schemas[0].name}: the definition ({first.name}, …) does not take the required {argument.name}"
            )

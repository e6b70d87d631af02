"""A fused operator's reference: the official signature in front, one definition behind, two precisions out of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from .binding import Bound, bind, same_value
from .errors import InvalidArgument, UnsupportedArgument, describe
from .precision import GOLDEN, OWN, Precision
from .schema import Schema

Uncompared = Mapping[int, str] | Callable[[Mapping[str, Any]], Mapping[int, str]]


@dataclass(frozen=True, repr=False)
class FusedOp:
    """A callable reference of one fused operator.

    Calling it gives the reference device's run: the inputs' own dtype outside, float32 accumulation inside, one
    rounding. `golden` gives the same definition in float64. Neither writes to an argument: where the device's call
    does, the new values are returned.

    Attributes:
        name: the operator's name, as in `torch_npu.<name>` and `NPU.<name>`.
        schemas: its official overloads; a call is bound to the first that takes it.
        source: where signature and formula come from, and which source is followed where they disagree.
        standard: how its float results are judged, "benchmark", "binary consistency" or another standard's name;
            indices and integers are always judged exactly.
        deterministic: whether equal inputs always give equal results on the device.
        backward_of: the operator whose gradient this one is.
        definition: `definition(precision, **arguments)`, the one place with the formula.
        undefined: outputs that must not be compared by value, with the reason, or a function of the bound
            arguments that gives them.
        uncompared_note: in words, what `undefined` gives where it is a function.
        inert: arguments without numerical effect, accepted with any value.
        extras: documented arguments of other releases with their defaults.
        writes: arguments that the call writes to although the schema does not mark them, with the output's index.
    """

    name: str
    schemas: tuple[Schema, ...]
    source: str
    definition: Callable[..., Any]
    standard: str = "benchmark"
    deterministic: bool = True
    backward_of: str | None = None
    undefined: Uncompared = field(default_factory=dict)
    uncompared_note: str = ""
    inert: frozenset[str] = frozenset()
    extras: Mapping[str, Any] = field(default_factory=dict)
    writes: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"FusedOp({self.name})"

    @property
    def schema(self) -> str:
        """The official schema text of the main overload."""
        return self.schemas[0].text

    @property
    def mutates(self) -> tuple[str, ...]:
        """Names of the arguments that the device's call writes to, in every legal spelling."""
        names: dict[str, None] = dict.fromkeys(self.writes)
        for schema in self.schemas:
            if schema.outs:
                names["out"] = None
            names.update(dict.fromkeys(argument.name for argument in schema.written))
        return tuple(names)

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Arguments of the main overload that are only implemented at their default."""
        taken = _parameters(self.definition)
        if _takes_all(taken):
            return ()
        outs = {argument.name for argument in self.schemas[0].outs}
        names = [argument.name for argument in self.schemas[0].arguments]
        return tuple(name for name in names if name not in {*taken, *self.inert, *outs})

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._run(OWN, args, kwargs)

    def golden(self, /, *args: Any, **kwargs: Any) -> Any:
        """The result in float64, computed in float64 from the arguments as they are."""
        return self._run(GOLDEN, args, kwargs)

    def uncompared(self, /, *args: Any, **kwargs: Any) -> dict[int, str]:
        """Outputs of this call, by index, that must not be compared by value, each with its reason."""
        if not callable(self.undefined):
            return dict(self.undefined)
        try:
            return dict(self.undefined(self._bind(args, kwargs).values))
        except (InvalidArgument, UnsupportedArgument) as exc:
            raise exc.of(self.name) from exc.__cause__

    def written(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> dict[str, Any]:
        """What the call leaves in the arguments it writes to, by their place in the call, `args[9]` or `kwargs.out`.

        `out=` with several tensors gives a tuple of as many values.
        """
        bound = self._bind(args, kwargs)
        results = result if isinstance(result, tuple) else (result,)
        index_of = {item.alias: index for index, item in enumerate(bound.schema.returns) if item.alias}
        writes = dict(self.writes)
        writes.update((item.name, index_of[item.alias]) for item in bound.schema.written if item.alias in index_of)
        found: dict[str, Any] = {}
        for name, index in writes.items():
            place = bound.places.get(name)
            if place in found:
                found[place] = (*found[place], results[index])
            elif place is not None:
                found[place] = (results[index],) if isinstance(kwargs.get("out"), (tuple, list)) else results[index]
        return found

    def _run(self, precision: Precision, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        try:
            bound = self._bind(args, kwargs)
            with _no_autocast(bound):
                return self.definition(precision, **self._chosen(bound))
        except (InvalidArgument, UnsupportedArgument) as exc:
            raise exc.of(self.name) from exc.__cause__

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        return bind(self.schemas, args, kwargs, self.extras)

    def _chosen(self, bound: Bound) -> dict[str, Any]:
        """The arguments that the definition takes; any other must be inert, an output buffer or at its default."""
        taken = _parameters(self.definition)
        if _takes_all(taken):
            return bound.values
        outs = {argument.name for argument in bound.schema.outs}
        for argument in bound.schema.arguments:
            name = argument.name
            if name in taken or name in self.inert or name in outs or same_value(bound.values[name], argument.default):
                continue
            rule = (
                f"only its default {argument.default!r} is implemented" if not argument.required else "not implemented"
            )
            raise UnsupportedArgument(name, describe(bound.values[name]), rule)
        return {name: value for name, value in bound.values.items() if name in taken}


@functools.cache
def _parameters(definition: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(definition).parameters


def _takes_all(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())


def _no_autocast(bound: Bound) -> AbstractContextManager[Any]:
    """Autocast off: vendor operators are in none of the framework's autocast lists, kernels see the inputs as they are."""
    tensors = [value for value in bound.values.values() if isinstance(value, torch.Tensor)]
    device = tensors[0].device.type if tensors else "cpu"
    return torch.autocast(device, enabled=False) if device in {"cpu", "cuda", "npu"} else nullcontext()

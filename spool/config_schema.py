"""One way to check a configuration: a table of keys, each with its kind and rule; errors name place, value, rule and remedy."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ConfigError

Check = Callable[[Any], Any]
# More names than this are no help in a message.
_SHOWN = 40


@dataclass(frozen=True)
class Key:
    """One key of a configuration object.

    `help` is what the reference says of it; `check` returns the value in its final form or raises ValueError; `rule` is what
    the message says must hold.
    """

    help: str
    check: Check
    rule: str
    default: Any = None
    required: bool = False


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON object in a file; ConfigError when it is missing, unreadable or something else."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path}: cannot be read: {why}; give the path of a configuration file") from error
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: no JSON: {error}; correct the file at that place") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: holds {_kind(value)}; the whole file must be one JSON object")
    return value


def validate(values: Any, keys: Mapping[str, Key], place: str, prefix: str = "") -> dict[str, Any]:
    """Every key of the table with its checked value or default. `place` is the file, `prefix` the object inside it."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{place}: {prefix.rstrip('.') or 'the configuration'} is {values!r}; it must be an object")
    for name in values:
        if name not in keys:
            raise ConfigError(f"{place}: {prefix}{name}: unknown key; {nearest(str(name), keys)}")
    checked = {}
    for name, key in keys.items():
        if name not in values:
            if key.required:
                raise ConfigError(f"{place}: {prefix}{name} is missing; it must be {key.rule}")
            checked[name] = key.default
            continue
        try:
            checked[name] = key.check(values[name])
        except (ValueError, TypeError) as error:
            detail = f" ({error})" if str(error) else ""
            raise ConfigError(f"{place}: {prefix}{name} is {values[name]!r}; it must be {key.rule}{detail}") from error
    return checked


def nearest(name: str, known: Iterable[str]) -> str:
    """The part of a message that helps on: the nearest known name, or all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{close[0]}"?'
    return f"known are {', '.join(sorted(names))}" if len(names) <= _SHOWN else "nothing known has a name like it"


def text(value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise ValueError
    return value


def boolean(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError
    return value


def integer(least: int, most: int | None = None) -> Check:
    """An integer from `least` to `most`."""

    def check(value: Any) -> int:
        if type(value) is not int or value < least or (most is not None and value > most):
            raise ValueError
        return value

    return check


def number(above: float) -> Check:
    """A finite number greater than `above`."""

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not above < value < float("inf"):
            raise ValueError
        return float(value)

    return check


def choice(*allowed: str) -> Check:
    """One of the words given."""

    def check(value: Any) -> str:
        if value not in allowed or not isinstance(value, str):
            raise ValueError(nearest(str(value), allowed))
        return value

    return check


def optional(check: Check) -> Check:
    """What `check` accepts, or null."""
    return lambda value: None if value is None else check(value)


def texts(value: Any) -> tuple[str, ...]:
    """A list of non-empty strings."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) and item for item in value):
        raise ValueError
    return tuple(value)


def numbers(value: Any) -> tuple[int, ...]:
    """A list of integers from 0 on; a string such as "4-7" stands for a range, both ends included."""
    if not isinstance(value, list | tuple):
        raise ValueError
    found: list[int] = []
    for item in value:
        if type(item) is int and item >= 0:
            found.append(item)
            continue
        first, dash, last = item.partition("-") if isinstance(item, str) else ("", "", "")
        if not (first.isdecimal() and dash and last.isdecimal() and int(first) <= int(last)):
            raise ValueError(f"{item!r} is neither an integer from 0 on nor a range such as '4-7'")
        found += range(int(first), int(last) + 1)
    return tuple(dict.fromkeys(found))


def _kind(value: Any) -> str:
    return {list: "a list", str: "a string", int: "a number", float: "a number", bool: "a boolean"}.get(
        type(value), "null"
    )

"""Official operator schemas as text, parsed into frozen records.

The grammar is that of PyTorch's native functions, ``name.overload(Type arg=default, *, Type kwarg) -> (Type, Type)``;
``Tensor(a!)`` marks an argument that the call writes to.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

_ALIAS = re.compile(r"\(([a-z])(!?)\)")
_WORDS: dict[str, Any] = {"None": None, "True": True, "False": False, "[]": ()}
REQUIRED = object()


@dataclass(frozen=True)
class Argument:
    """One argument: `type` without its alias mark, `alias` the mark's letter, `default` REQUIRED if there is none."""

    name: str
    type: str
    default: Any
    keyword_only: bool
    alias: str = ""
    written: bool = False

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


@dataclass(frozen=True)
class Return:
    """One value of the result: its type, its name where the schema gives one, the alias mark's letter."""

    type: str
    name: str = ""
    alias: str = ""


@dataclass(frozen=True)
class Schema:
    """One overload of one operator."""

    text: str
    name: str
    overload: str
    arguments: tuple[Argument, ...]
    returns: tuple[Return, ...]

    @property
    def positional(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if not argument.keyword_only)

    @property
    def written(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.written)

    @property
    def outs(self) -> tuple[Argument, ...]:
        """The written keyword-only arguments, which Python callers give as one `out=`."""
        return tuple(argument for argument in self.arguments if argument.written and argument.keyword_only)


def parse_schema(text: str) -> Schema:
    """The record of one schema text; ValueError where it does not follow the grammar."""
    match = re.fullmatch(r"\s*(\w+)(?:\.(\w+))?\s*\((.*)\)\s*->\s*(.+?)\s*", text, re.DOTALL)
    if match is None:
        raise ValueError(f"schema {text!r}: expected 'name(Type argument, …) -> Type'")
    name, overload, arguments, returns = match.groups()
    parsed: list[Argument] = []
    keyword_only = False
    for part in _split(arguments):
        if part == "*":
            keyword_only = True
        else:
            parsed.append(_argument(part, keyword_only))
    inner = returns[1:-1] if returns.startswith("(") and returns.endswith(")") else returns
    return Schema(
        " ".join(text.split()), name, overload or "", tuple(parsed), tuple(_return(part) for part in _split(inner))
    )


def _argument(part: str, keyword_only: bool) -> Argument:
    declaration, has_default, default = part.partition("=")
    type_text, _, name = declaration.strip().rpartition(" ")
    if not type_text or not name.isidentifier():
        raise ValueError(f"schema argument {part!r}: expected 'Type name' or 'Type name=default'")
    alias = _ALIAS.search(type_text)
    return Argument(
        name=name,
        type=_ALIAS.sub("", type_text).replace("SymInt", "int").strip(),
        default=_default(default.strip()) if has_default else REQUIRED,
        keyword_only=keyword_only,
        alias=alias.group(1) if alias else "",
        written=bool(alias and alias.group(2)),
    )


def _return(part: str) -> Return:
    alias = _ALIAS.search(part)
    type_text, _, name = _ALIAS.sub("", part).strip().partition(" ")
    return Return(type_text, name, alias.group(1) if alias else "")


def _default(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    value = ast.literal_eval(text)
    return tuple(value) if isinstance(value, list) else value


def _split(text: str) -> list[str]:
    """Parts between the commas that no bracket encloses."""
    parts: list[str] = []
    depth = 0
    start = 0
    for index, letter in enumerate(text):
        depth += letter in "(["
        depth -= letter in ")]"
        if letter == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts

"""Python values as JSON trees and back: the arguments and results of a call, tensors by reference.

Plain values stand for themselves (None, bool, int, finite float, str, list). Everything else is an object with exactly one
`$tag`, listed in docs/bundle-format.md; a dict is `{"$dict": [[key, value], …]}`, so that no user key can look like a tag.
Decoding builds values from closed tables only: nothing that a tree names is imported or called.
"""

from __future__ import annotations

import base64
import keyword
import math
import re
from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from .errors import BundleMalformed, NotRepresentable
from .storage import LocalShard, TensorSink, restore

Tree = Any
MAX_DEPTH = 64
# Up to 127: torch takes larger indices without a word and makes them negative.
_DEVICE = re.compile(r"[a-z_]{1,32}(:(?:\d|[1-9]\d|1[01]\d|12[0-7]))?", re.ASCII)

_DTYPES = {str(v).removeprefix("torch."): v for v in vars(torch).values() if isinstance(v, torch.dtype)}
_LAYOUTS = {str(v).removeprefix("torch."): v for v in vars(torch).values() if isinstance(v, torch.layout)}
_MEMORY_FORMATS = {str(v).removeprefix("torch."): v for v in vars(torch).values() if isinstance(v, torch.memory_format)}


def encode_tree(value: Any, sink: TensorSink, path: str = "value") -> Tree:
    """Encode one value; tensors go to `sink`. NotRepresentable names the type and the place of what a bundle cannot hold."""
    return _encode(value, sink, path, 0)


def decode_tree(tree: Tree, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Rebuild a value in fresh containers; tensors are shared with `tensors`. BundleMalformed for what is no tree of ours."""
    return _decode(tree, tensors, 0)


def _encode(value: Any, sink: TensorSink, path: str, depth: int) -> Tree:
    kind = type(value)
    if kind is bool or value is None:
        return value
    if kind is int:
        # Beyond 64 bits most JSON readers would lose digits, and Python itself refuses very long ones.
        return value if -(2**63) <= value < 2**64 else {"$int": hex(value)}
    if kind is str:
        return _checked_str(value, path)
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, torch.Tensor):
        return sink.add(value, path)
    if depth >= MAX_DEPTH:
        raise NotRepresentable(f"{kind.__name__} nested deeper than {MAX_DEPTH}", path)
    if kind is tuple:
        return {"$tuple": [_encode(item, sink, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]}
    if kind is list:
        return [_encode(item, sink, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    if kind is dict:
        return {"$dict": _pairs(value, sink, path, depth)}
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple(value)
    return _encode_rarer(value, sink, path, depth)


def _encode_rarer(value: Any, sink: TensorSink, path: str, depth: int) -> Tree:
    kind = type(value)
    if kind is LocalShard:
        return sink.add(value, path)
    if isinstance(value, torch.Size):
        return {"$size": [int(size) for size in value]}
    if isinstance(value, tuple) and kind.__module__ == "torch.return_types":
        items = [_encode(item, sink, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
        return {"$return_type": kind.__name__, "items": items}
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        fields = list(kind._fields)
        if not all(map(_is_field, (kind.__name__.lstrip("_"), *fields))):
            raise NotRepresentable(f"{kind.__module__}.{kind.__qualname__}", path)
        items = [_encode(item, sink, f"{path}.{name}", depth + 1) for name, item in zip(fields, value, strict=True)]
        return {"$namedtuple": kind.__name__.lstrip("_"), "fields": fields, "items": items}
    if kind is slice:
        parts = {"start": value.start, "stop": value.stop, "step": value.step}
        return {"$slice": [_encode(part, sink, f"{path}.{name}", depth + 1) for name, part in parts.items()]}
    if kind in (set, frozenset):
        items = [_encode(item, sink, f"{path}{{{i}}}", depth + 1) for i, item in enumerate(value)]
        return {f"${kind.__name__}": items}
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return {"$numpy": value.dtype.str, "hex": value.tobytes().hex()}
    if isinstance(value, dict) and hasattr(value, "keys"):
        # Ordered and default dictionaries of the caller: what counts is what they hold.
        return {"$dict": _pairs(value, sink, path, depth)}
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise NotRepresentable(kind.__name__, path)
    if isinstance(value, bool | int | float | str) and kind.__module__ != "builtins":
        # An enum or a subclass of a plain type: its plain value is what a kernel sees.
        return _encode(_plain(value), sink, path, depth)
    raise NotRepresentable(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."), path)


def _plain(value: Any) -> Any:
    for base in (bool, int, float, str):
        if isinstance(value, base):
            return base(value.value if hasattr(value, "value") else value)
    return value


def _checked_str(value: str, path: str) -> str:
    if value.isascii():
        return value
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise NotRepresentable("str with lone surrogates", path) from None
    return value


def _pairs(value: Mapping[Any, Any], sink: TensorSink, path: str, depth: int) -> list[list[Tree]]:
    pairs = []
    for key, item in value.items():
        place = f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else f"{path}[{key!r}]"
        pairs.append([_encode(key, sink, f"{path} (key)", depth + 1), _encode(item, sink, place, depth + 1)])
    return pairs


_SIMPLE: dict[type, Callable[[Any], Tree]] = {
    complex: lambda v: {"$complex": [float.hex(v.real), float.hex(v.imag)]},
    bytes: lambda v: {"$bytes": base64.b64encode(v).decode("ascii")},
    torch.Size: lambda v: {"$size": [int(size) for size in v]},
    torch.dtype: lambda v: {"$dtype": str(v).removeprefix("torch.")},
    torch.device: lambda v: {"$device": str(v)},
    torch.layout: lambda v: {"$layout": str(v).removeprefix("torch.")},
    torch.memory_format: lambda v: {"$memory_format": str(v).removeprefix("torch.")},
    type(...): lambda v: {"$ellipsis": True},
    range: lambda v: {"$range": [v.start, v.stop, v.step]},
}


def _decode(tree: Tree, tensors: Mapping[str, torch.Tensor], depth: int) -> Any:
    kind = type(tree)
    if kind in (int, bool, float, str) or tree is None:
        return tree
    if depth > 2 * MAX_DEPTH:
        raise BundleMalformed(f"the tree is nested deeper than {2 * MAX_DEPTH}")
    if kind is list:
        return [_decode(item, tensors, depth + 1) for item in tree]
    if kind is not dict:
        raise BundleMalformed(f"{kind.__name__} is no part of a tree")
    tags = [key for key in tree if key.startswith("$")]
    decoder = _DECODERS.get(tags[0]) if len(tags) == 1 else None
    if decoder is None:
        raise BundleMalformed(f"unknown tag {', '.join(tags) or '(none)'}; known are {', '.join(_DECODERS)}")
    try:
        return decoder(tree, lambda item: _decode(item, tensors, depth + 1), tensors)
    except BundleMalformed:
        raise
    except (TypeError, ValueError, KeyError, OverflowError, RuntimeError, AttributeError) as error:
        raise BundleMalformed(f"{tags[0]}: {error}") from error


def _items(tree: Any, key: str) -> list[Any]:
    items = tree[key]
    if not isinstance(items, list):
        raise BundleMalformed(f"{key} holds {type(items).__name__}, not a list")
    return items


def _ints(tree: Any, key: str) -> list[int]:
    items = _items(tree, key)
    if not all(type(item) is int for item in items):
        raise BundleMalformed(f"{key} holds something other than integers")
    return items


def _named(table: Mapping[str, Any], name: Any, what: str) -> Any:
    if not isinstance(name, str) or name not in table:
        raise BundleMalformed(f"{name!r} is no {what} of torch {torch.__version__}")
    return table[name]


def _return_type(tree: Any, decode: Callable[[Any], Any], _: Any) -> Any:
    kind = vars(torch.return_types).get(tree["$return_type"])
    if not (isinstance(kind, type) and issubclass(kind, tuple)):
        raise BundleMalformed(f"{tree['$return_type']!r} is no return type of torch {torch.__version__}")
    return kind([decode(item) for item in _items(tree, "items")])


def _is_field(word: Any) -> bool:
    return isinstance(word, str) and word.isidentifier() and not keyword.iskeyword(word) and word[0] != "_"


def _named_tuple(tree: Any, decode: Callable[[Any], Any], _: Any) -> Any:
    """A named tuple made here from the stored names; the class that the caller had is not looked for."""
    name, fields = tree["$namedtuple"], _items(tree, "fields")
    for word in (name, *fields):
        if not _is_field(word):
            raise BundleMalformed(f"{word!r} is no name for a named tuple or its field")
    if len(fields) > 256:
        raise BundleMalformed(f"a named tuple of {len(fields)} fields; at most 256")
    return namedtuple(name, fields)(*(decode(item) for item in _items(tree, "items")))


def _numpy(tree: Any, _: Any, __: Any) -> Any:
    dtype = np.dtype(tree["$numpy"])
    if dtype.kind not in "biufc":
        raise BundleMalformed(f"numpy type {dtype} is no number")
    return np.frombuffer(bytes.fromhex(tree["hex"]), dtype=dtype, count=1)[0]


def _dict(tree: Any, decode: Callable[[Any], Any], _: Any) -> Any:
    pairs = _items(tree, "$dict")
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise BundleMalformed("$dict holds something other than pairs")
    found = {decode(key): decode(item) for key, item in pairs}
    if len(found) != len(pairs):
        raise BundleMalformed("$dict has a key twice")
    return found


def _device(tree: Any, _: Any, __: Any) -> torch.device:
    name = tree["$device"]
    match = _DEVICE.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise BundleMalformed(f"{name!r} is no device")
    try:
        return torch.device(name)
    except RuntimeError:
        # A vendor's device (npu:0) whose package is not loaded here: what torch itself calls such devices.
        return torch.device(f"privateuseone{match[1] or ''}")


def _int(tree: Any, _: Any, __: Any) -> int:
    text = tree["$int"]
    if not isinstance(text, str) or len(text) > 10**6:
        raise BundleMalformed("$int holds no hexadecimal integer")
    return int(text, 16)


def _complex(tree: Any, _: Any, __: Any) -> complex:
    real, imag = _items(tree, "$complex")
    return complex(float.fromhex(real), float.fromhex(imag))


def _float(tree: Any, _: Any, __: Any) -> float:
    if tree["$float"] not in ("inf", "-inf", "nan"):
        raise BundleMalformed(f"$float holds {tree['$float']!r}, not inf, -inf or nan")
    return float(tree["$float"])


_DECODERS: dict[str, Callable[[Any, Callable[[Any], Any], Mapping[str, torch.Tensor]], Any]] = {
    "$tensor": lambda t, decode, tensors: restore(t, tensors),
    "$tuple": lambda t, decode, _: tuple(decode(item) for item in _items(t, "$tuple")),
    "$dict": _dict,
    "$float": _float,
    "$int": _int,
    "$complex": _complex,
    "$bytes": lambda t, decode, _: base64.b64decode(t["$bytes"], validate=True),
    "$size": lambda t, decode, _: torch.Size(_ints(t, "$size")),
    "$dtype": lambda t, decode, _: _named(_DTYPES, t["$dtype"], "dtype"),
    "$device": _device,
    "$layout": lambda t, decode, _: _named(_LAYOUTS, t["$layout"], "layout"),
    "$memory_format": lambda t, decode, _: _named(_MEMORY_FORMATS, t["$memory_format"], "memory format"),
    "$ellipsis": lambda t, decode, _: ...,
    "$range": lambda t, decode, _: range(*_ints(t, "$range")),
    "$slice": lambda t, decode, _: slice(*(decode(part) for part in _items(t, "$slice"))),
    "$set": lambda t, decode, _: {decode(item) for item in _items(t, "$set")},
    "$frozenset": lambda t, decode, _: frozenset(decode(item) for item in _items(t, "$frozenset")),
    "$return_type": _return_type,
    "$namedtuple": _named_tuple,
    "$numpy": _numpy,
}

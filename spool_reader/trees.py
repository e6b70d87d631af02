"""Walking and rebuilding the nested values that arguments and results are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

_STEP = re.compile(r"\[(\d+)\]|\[(['\"])(.*?)\2\]|\.([^.\[\]]+)")
_SCALARS = frozenset({int, float, bool, str, type(None), complex, bytes, torch.dtype, torch.Tensor, torch.device})


def map_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """The same tree with every leaf changed; containers keep their types and are always fresh."""
    kind = type(tree)
    if kind in _SCALARS:
        return change(tree)
    if kind is tuple or kind is list:
        return kind([map_leaves(change, item) for item in tree])
    if kind is dict:
        return {key: map_leaves(change, item) for key, item in tree.items()}
    if kind is slice:
        return slice(map_leaves(change, tree.start), map_leaves(change, tree.stop), map_leaves(change, tree.step))
    if isinstance(tree, tuple) and not isinstance(tree, torch.Size):
        items = [map_leaves(change, item) for item in tree]
        return kind(*items) if hasattr(tree, "_fields") else kind(items)
    return change(tree)


def tensors(tree: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a tree, in order."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from tensors(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from tensors(item)
    elif isinstance(tree, slice):
        yield from tensors((tree.start, tree.stop, tree.step))


def equal_bits(one: Any, other: Any) -> bool:
    """Whether two trees hold the same tensors, bit for bit."""
    ours, theirs = list(tensors(one)), list(tensors(other))
    return len(ours) == len(theirs) and all(map(_same_bits, ours, theirs))


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype is not other.dtype or one.shape != other.shape:
        return False
    return torch.equal(*(item.contiguous().view(-1).view(torch.uint8) for item in (one, other)))


def named_leaves(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every leaf of a tree with its place, such as `args[0][2]` or `result.values`."""
    if isinstance(tree, dict):
        for key, item in tree.items():
            yield from named_leaves(item, f"{name}.{key}" if isinstance(key, str) else f"{name}[{key!r}]")
    elif isinstance(tree, (tuple, list)) and not isinstance(tree, torch.Size):
        for index, item in enumerate(tree):
            yield from named_leaves(item, f"{name}[{index}]")
    else:
        yield name, tree


def at_path(args: tuple[Any, ...], kwargs: dict[str, Any], path: str) -> Any:
    """What stands at a path such as `args[0][2]` or `kwargs.out`; LookupError where there is nothing."""
    root, rest = (args, path[4:]) if path.startswith("args") else (kwargs, path.removeprefix("kwargs"))
    value: Any = root
    position = 0
    while position < len(rest):
        step = _STEP.match(rest, position)
        if step is None:
            raise LookupError(path)
        index, _, quoted, name = step.groups()
        value = _child(value, int(index) if index is not None else quoted if quoted is not None else name, path)
        position = step.end()
    return value


def _child(value: Any, key: int | str, path: str) -> Any:
    if isinstance(value, dict) and key in value:
        return value[key]
    if isinstance(value, (tuple, list)) and isinstance(key, int) and key < len(value):
        return value[key]
    fields = getattr(value, "_fields", ())
    if isinstance(value, tuple) and key in fields:
        return value[fields.index(key)]
    raise LookupError(path)

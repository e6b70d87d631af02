"""Outputs as leaves with paths, and what is wrong when two structures differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


class Missing:
    """Stands where one side has no such output."""

    def __repr__(self) -> str:
        return "missing"


MISSING = Missing()


def leaves(tree: Any) -> dict[str, Any]:
    """Leaves of nested containers by path: `0`, `values`, `1.a`. A bare leaf has the path `0`."""
    if isinstance(tree, (torch.Tensor, str, bytes)) or not _is_container(tree):
        return {"0": tree}
    found: dict[str, Any] = {}
    _collect(tree, "", found)
    return found


def paired(device: Any, reference: Any, golden: Any) -> list[tuple[str, Any, Any, Any]]:
    """(path, device, reference, golden) for every output that either side has."""
    ours, theirs, best = leaves(device), leaves(reference), leaves(golden)
    if len(ours) == len(theirs) and list(ours) != list(theirs) and not _has_mapping(device, reference):
        # A plain tuple against a named one: the same outputs, in the same order.
        theirs = dict(zip(ours, theirs.values(), strict=True))
    if list(best) != list(ours) and len(best) == len(ours) and not _has_mapping(device, golden):
        best = dict(zip(ours, best.values(), strict=True))
    paths = list(dict.fromkeys((*ours, *theirs)))
    return [(path, ours.get(path, MISSING), theirs.get(path, MISSING), best.get(path)) for path in paths]


def _is_container(value: Any) -> bool:
    return isinstance(value, (tuple, list, Mapping))


def _has_mapping(*trees: Any) -> bool:
    for tree in trees:
        if isinstance(tree, Mapping):
            return True
        if isinstance(tree, (tuple, list)) and _has_mapping(*tree):
            return True
    return False


def _collect(value: Any, path: str, found: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, (tuple, list)):
        names = _field_names(value)
        items = [(names[place] if names else str(place), item) for place, item in enumerate(value)]
    else:
        found[path] = value
        return
    for name, item in items:
        _collect(item, f"{path}.{name}" if path else name, found)


def _field_names(value: Any) -> tuple[str, ...]:
    """Names of a named tuple's or a torch.return_types' fields."""
    names = getattr(value, "_fields", None)
    if names:
        return tuple(names)
    count = getattr(value, "n_sequence_fields", 0)
    if not count or isinstance(value, torch.Size):
        return ()
    by_value = {id(getattr(value, name)): name for name in dir(value) if not name.startswith(("_", "n_"))}
    found = tuple(by_value.get(id(item), "") for item in value)
    return found if all(found) and len(set(found)) == count else ()


def unequal_structure(device: Any, reference: Any) -> str:
    """What is wrong with a pair of leaves before any value is looked at; empty where nothing is."""
    if device is MISSING:
        return "output is missing: the reference has it"
    if reference is MISSING:
        return "surplus output: the reference has none"
    if isinstance(device, torch.Tensor) != isinstance(reference, torch.Tensor):
        return f"type: {_type(device)} against {_type(reference)}"
    if isinstance(device, torch.Tensor) and device.shape != reference.shape:
        return f"shape: {tuple(device.shape)} against {tuple(reference.shape)}"
    return ""


def _type(value: Any) -> str:
    return "None" if value is None else type(value).__name__

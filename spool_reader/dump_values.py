"""Values as msprobe's dump.json writes them, back as Python values and tensors."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

# What the loader raises for a file that is damaged, or that holds more than tensors.
_UNLOADABLE = (OSError, RuntimeError, ValueError, EOFError, KeyError, TypeError, AttributeError, pickle.UnpicklingError)
_NUMPY: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "byte"), int),
    **dict.fromkeys(("float16", "float32", "float64", "longdouble"), float),
    **dict.fromkeys(("bool_", "str_"), lambda value: value),
}
_DEPTH = 20


class NotHeld(Exception):
    """Why a call of a dump cannot be judged."""


def decoded(item: Any, data: Path, path: str, depth: int = 0) -> Any:
    """The value that stands at `path` of a call; tensors come from the folder `data`. Raises NotHeld."""
    if depth > _DEPTH:
        raise NotHeld(f"{path}: nested more than {_DEPTH} deep")
    if item is None:
        return None
    if isinstance(item, list):
        return [decoded(inner, data, f"{path}[{index}]", depth + 1) for index, inner in enumerate(item)]
    if not isinstance(item, dict):
        raise NotHeld(f"{path}: dump.json has {item!r} where a value should be described"[:200])
    if not item:
        raise NotHeld(f"{path}: the dump does not say what stood here")
    kind = item.get("type")
    if not isinstance(kind, str):
        return {str(name): decoded(inner, data, f"{path}.{name}", depth + 1) for name, inner in item.items()}
    if kind == "torch.Tensor":
        return _tensor(item, data, path)
    return _plain(kind, item, path)


def _plain(kind: str, item: dict[str, Any], path: str) -> Any:
    value = item.get("value")
    try:
        if kind in ("bool", "int", "float", "str"):
            if type(value).__name__ == kind:
                return value
        elif kind in _NUMPY:
            return _NUMPY[kind](value)
        elif kind == "slice":
            return slice(*map(_index, value or ()))
        elif kind == "ellipsis":
            return ...
        elif kind == "torch.Size":
            return torch.Size([_size(inner) for inner in value or ()])
        elif kind == "torch.dtype":
            return _of_torch(str(value), torch.dtype)
        elif kind == "torch.memory_format":
            return _of_torch(f"torch.{item.get('format')}", torch.memory_format)
        elif kind == "torch.device":
            return _device(str(value))
    except (ValueError, TypeError, AttributeError, RuntimeError, OverflowError):
        pass
    raise NotHeld(f"{path}: a {kind} that the dump describes as {value!r} cannot be made again"[:300])


def _index(value: Any) -> int | None:
    if value is not None and type(value) is not int:
        raise ValueError
    return value


def _size(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _of_torch(name: str, kind: type) -> Any:
    found = getattr(torch, name.removeprefix("torch."))
    if not isinstance(found, kind):
        raise ValueError
    return found


def _device(name: str) -> torch.device:
    name = name.removesuffix(":None")
    try:
        return torch.device(name)
    except RuntimeError:
        # A vendor's device whose package is not here; a replay maps it to its own in any case.
        return torch.device("privateuseone", int(name.partition(":")[2] or 0))


def _tensor(item: dict[str, Any], data: Path, path: str) -> torch.Tensor:
    name = item.get("data_name")
    if name is None:
        raise NotHeld(f"{path}: the dump has no data of this tensor")
    if not isinstance(name, str) or not name.endswith(".pt") or os.path.basename(name) != name or "\0" in name:
        raise NotHeld(
            f"{path}: data_name {name!r} is no name of a .pt file in dump_tensor_data, and was not opened"[:300]
        )
    file = data / name
    if not file.is_file():
        raise NotHeld(f"{path}: {name} is missing in dump_tensor_data")
    if file.resolve().parent != data.resolve():
        raise NotHeld(f"{path}: {name} is a link out of dump_tensor_data, and was not opened")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tensor = torch.load(file, map_location="cpu", weights_only=True)
    except _UNLOADABLE as error:
        raise NotHeld(f"{path}: {name} cannot be loaded: {type(error).__name__}: {_first_line(error)}") from error
    if not isinstance(tensor, torch.Tensor):
        raise NotHeld(f"{path}: {name} holds {type(tensor).__name__}, no tensor")
    said = item.get("dtype"), item.get("shape")
    if said != (str(tensor.dtype), list(tensor.shape)):
        raise NotHeld(f"{path}: {name} is {tensor.dtype} {list(tensor.shape)}, dump.json says {said[0]} {said[1]}")
    return tensor.detach()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:150]

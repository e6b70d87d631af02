"""Dumps in the layout of msprobe's (task tensor, level L1), made by hand for machines without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

X = torch.tensor([1.0, 2.0, 3.0])


class DumpMaker:
    """One `step{S}/rank{R}` folder; `call` adds an entry and its files, `write` the table."""

    def __init__(self, root: Path, *, step: int = 0, rank: int | str = 0) -> None:
        self.folder = root / f"step{step}" / f"rank{rank}"
        self.data = self.folder / "dump_tensor_data"
        self.data.mkdir(parents=True)
        self.entries: dict[str, Any] = {}
        self.top: dict[str, Any] = {
            "task": "tensor",
            "level": "L1",
            "framework": "pytorch",
            "dump_data_dir": "/somewhere/else",
        }

    def tensor(self, name: str, value: torch.Tensor) -> dict[str, Any]:
        """Save a tensor; its description for dump.json."""
        torch.save(value, self.data / f"{name}.pt")
        described = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape)}
        return {**described, "Max": None, "Min": None, "requires_grad": False, "data_name": f"{name}.pt"}

    def value(self, name: str, value: Any) -> Any:
        """Describe a value as the tool does."""
        if isinstance(value, torch.Tensor):
            return self.tensor(name, value)
        if isinstance(value, (list, tuple)):
            return [self.value(f"{name}.{index}", item) for index, item in enumerate(value)]
        if isinstance(value, slice):
            return {"type": "slice", "value": [value.start, value.stop, value.step]}
        if value is ...:
            return {"type": "ellipsis", "value": "..."}
        if isinstance(value, (torch.dtype, torch.device)):
            return {"type": f"torch.{type(value).__name__}", "value": str(value)}
        if isinstance(value, torch.memory_format):
            return {"type": "torch.memory_format", "format": str(value).removeprefix("torch.")}
        return None if value is None else {"type": type(value).__name__, "value": value}

    def call(self, api: str, args: Any, kwargs: dict[str, Any] | None = None, output: Any = None) -> dict[str, Any]:
        """Add a forward call; its entry, to be changed at will."""
        name = f"{api}.forward"
        outputs = output if isinstance(output, tuple) else (output,)
        self.entries[name] = {
            "input_args": [self.value(f"{name}.input.{i}", arg) for i, arg in enumerate(args)],
            "input_kwargs": {key: self.value(f"{name}.kwargs.{key}", item) for key, item in (kwargs or {}).items()},
            "is_recompute": False,
            "output": [self.value(f"{name}.output.{i}", item) for i, item in enumerate(outputs)],
        }
        return self.entries[name]

    def write(self) -> None:
        """Write dump.json."""
        text = json.dumps({**self.top, "data": self.entries}, indent=1)
        (self.folder / "dump.json").write_text(text, encoding="utf-8")

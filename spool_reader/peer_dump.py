"""msprobe's offline tensor dump (level L1), read as calls.

::

    {dump}/step{S}/rank{R}/dump.json             every call in order: arguments, keyword arguments, outputs
    {dump}/step{S}/rank{R}/dump_tensor_data/     one .pt file for each tensor, named in dump.json

A training without ranks writes a folder `rank`. Files are loaded by torch's weights-only loader and only from that one
folder, whatever dump.json says; its own note of where the data lie is not followed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spool import SpoolError, SpoolUnavailable
from spool.names import is_api

from .dump_values import NotHeld, decoded

_STEP = re.compile(r"step(\d{1,9})")
_RANK = re.compile(r"rank(\d{0,9})")
_ENTRY = re.compile(r"(?P<api>.+)\.(?P<phase>forward|backward)")
# Index arguments: the dump writes a tuple as a list, and there the difference counts.
_INDEXING = ("__getitem__", "__setitem__")
GRADIENTS = "the dump holds the gradients at the ends of this API, not the operators of its backward"


@dataclass(frozen=True)
class DumpFolder:
    """The dump of one rank and step."""

    path: Path
    rank: int
    step: int

    @property
    def json(self) -> Path:
        """Its table of calls."""
        return self.path / "dump.json"


@dataclass(frozen=True)
class DumpedCall:
    """One call, or, with `skip`, the reason why it cannot be judged."""

    api: str
    phase: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    result: Any = None
    skip: str | None = None


def find_dumps(root: Path) -> list[DumpFolder]:
    """Every rank and step below `root`, which may also be one of them; SpoolUnavailable when there is none."""
    if not root.is_dir():
        raise SpoolUnavailable(
            f"{root}: no such directory; give the folder that `dump_path` of the dump's configuration named"
        )
    found = []
    for folder, inner, files in os.walk(root):
        depth = len(Path(folder).relative_to(root).parts)
        inner[:] = sorted(name for name in inner if name != "dump_tensor_data") if depth < 3 else []
        if "dump.json" in files:
            path = Path(folder)
            found.append(DumpFolder(path, _number(path, _RANK), _number(path, _STEP)))
    if not found:
        raise SpoolUnavailable(
            f"{root}: no dump.json in it or below; give the folder that holds step0/rank0/dump.json, or one of its parts"
        )
    return sorted(found, key=lambda dump: (dump.rank, dump.step, dump.path))


def read_table(dump: DumpFolder) -> Mapping[str, Any]:
    """The calls of a dump by name; SpoolError when it is no tensor dump of API calls."""
    place = dump.json
    try:
        table = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        raise SpoolError(f"{place}: cannot be read: {why}; was the dump cut off? Copy it again") from error
    if not isinstance(table, dict) or not isinstance(table.get("data"), dict):
        raise SpoolError(f"{place}: holds no object with `data`; give a dump of msprobe with task tensor and level L1")
    for key, allowed, remedy in (
        ("task", ("tensor",), "statistics hold no tensors to replay: dump with task tensor"),
        ("level", ("L1", "mix"), "only level L1 (or mix) holds API calls: dump with level L1"),
        ("framework", ("pytorch",), "only calls of PyTorch can be replayed"),
    ):
        if table.get(key) not in allowed:
            raise SpoolError(f"{place}: {key} is {table.get(key)!r}, not {' or '.join(allowed)}; {remedy}")
    return dict(table["data"])


def calls_of(dump: DumpFolder, table: Mapping[str, Any]) -> Iterator[DumpedCall]:
    """The calls in order. Entries of modules, which level mix adds, are left out: their calls stand beside them."""
    for name, entry in table.items():
        match = _ENTRY.fullmatch(name)
        if match is None or name.startswith("Module.") or not is_api(match["api"]):
            continue
        yield _call(dump, match["api"], match["phase"], entry)


def _call(dump: DumpFolder, api: str, phase: str, entry: Any) -> DumpedCall:
    if phase == "backward":
        return DumpedCall(api, phase, skip=GRADIENTS)
    try:
        return _decoded(dump, api, entry)
    except NotHeld as reason:
        return DumpedCall(api, phase, skip=str(reason))


def _decoded(dump: DumpFolder, api: str, entry: Any) -> DumpedCall:
    if not isinstance(entry, dict):
        raise NotHeld(f"dump.json says {entry!r} of this call"[:200])
    for part, kind in (("input_args", list), ("input_kwargs", dict), ("output", list)):
        if not isinstance(entry.get(part), kind):
            raise NotHeld(f"the dump holds no {part} of this call; dump with data_mode all")
    data = dump.path / "dump_tensor_data"
    args = [decoded(item, data, f"args[{index}]") for index, item in enumerate(entry["input_args"])]
    if api.split(".")[-2] in _INDEXING and len(args) > 1 and isinstance(args[1], list):
        args[1] = tuple(args[1])
    kwargs = {str(name): decoded(item, data, f"kwargs.{name}") for name, item in entry["input_kwargs"].items()}
    outputs = [_in_order(decoded(item, data, f"output[{index}]")) for index, item in enumerate(entry["output"])]
    if all(output is None for output in outputs):
        raise NotHeld("the dump holds nothing that this call returned, nor what it wrote")
    return DumpedCall(api, "forward", tuple(args), kwargs, outputs[0] if len(outputs) == 1 else tuple(outputs))


def _in_order(output: Any) -> Any:
    """The dump writes a named tuple as an object; its fields are judged in their order."""
    return tuple(map(_in_order, output.values())) if isinstance(output, dict) else output


def _number(path: Path, form: re.Pattern[str]) -> int:
    """The number in the nearest folder of this form, 0 where there is none."""
    found = (form.fullmatch(part) for part in reversed(path.absolute().parts[-3:]))
    return next((int(match[1] or 0) for match in found if match), 0)

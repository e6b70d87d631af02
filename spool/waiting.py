"""A bundle that waits, looked at where it lies: what its name says, and its header and dtypes on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from .bundle import CallHeader
from .codec import load_bundle, read_front
from .errors import SpoolUnavailable
from .names import BundleName, Place
from .storage import DTYPE_OF


class Waiting(Protocol):
    """What a reader may ask of a bundle before it claims it."""

    @property
    def rank(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def api(self) -> str: ...

    def header(self) -> CallHeader:
        """The header alone; BundleError when it cannot be used, SpoolUnavailable when the bundle has gone meanwhile."""

    def dtypes(self) -> frozenset[str]:
        """Of every tensor of the call, such as `bfloat16`; raises as `header` does."""


# Whether a reader wants a bundle that waits.
Wanted = Callable[[Waiting], bool]


@dataclass(frozen=True)
class WaitingFile:
    """A file of a directory; its header is read only when asked for."""

    path: Path
    rank: int
    step: int
    seq: int
    api: str

    @staticmethod
    def at(root: Path, place: Place, parsed: BundleName) -> WaitingFile:
        """The bundle of a spool in the directory `root`."""
        return WaitingFile(root / place.ready, place.rank, place.step, parsed.seq, parsed.api)

    def header(self) -> CallHeader:
        return self._front()[0]

    def dtypes(self) -> frozenset[str]:
        header, table = self._front()
        stored = {name: DTYPE_OF.get(entry.get("dtype")) for name, entry in table.items() if isinstance(entry, dict)}
        return _dtypes(header, stored)

    def _front(self) -> tuple[CallHeader, Mapping[str, Any]]:
        try:
            return read_front(self.path)
        except OSError as error:
            raise SpoolUnavailable(f"{self.path}: {error.strerror}; another reader may have it") from error


@dataclass(frozen=True)
class WaitingBytes:
    """A bundle in memory."""

    data: bytes
    rank: int
    step: int
    seq: int
    api: str

    def header(self) -> CallHeader:
        return load_bundle(self.data).header

    def dtypes(self) -> frozenset[str]:
        bundle = load_bundle(self.data)
        return _dtypes(bundle.header, {name: tensor.dtype for name, tensor in bundle.tensors.items()})


def _dtypes(header: CallHeader, stored: Mapping[str, torch.dtype | None]) -> frozenset[str]:
    """The names of the tensors' types: as they are stored, or as the tree says of what is stored as pairs of reals."""
    trees = (header.args, header.kwargs, header.result, header.mutated)
    plain = {name: str(dtype).removeprefix("torch.") for name, dtype in stored.items()}
    return frozenset({**plain, **dict(pair for tree in trees for pair in _pairs(tree))}.values())


def _pairs(tree: Any) -> Iterator[tuple[str, str]]:
    """The tensors that are stored as pairs of reals, with their true dtype."""
    if isinstance(tree, dict):
        if isinstance(tree.get("$tensor"), str) and isinstance(tree.get("dtype"), str):
            yield tree["$tensor"], tree["dtype"]
        for item in tree.values():
            yield from _pairs(item)
    elif isinstance(tree, list):
        for item in tree:
            yield from _pairs(item)

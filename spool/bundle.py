"""One API call as a value: the header that says what was called, and the tensors that it refers to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from .errors import BundleMalformed
from .names import is_api, is_session
from .storage import TensorSink, nbytes
from .values import Tree, decode_tree, encode_tree

FORMAT = 1
PHASES = ("forward", "backward")
Key = tuple[str, int, int, int]


@dataclass(frozen=True)
class CallHeader:
    """The JSON object under `spool_check` in a bundle's metadata, one field a key.

    `args`, `kwargs`, `result` and `mutated` are encoded trees. `skip` is set for a call that cannot be replayed: the reason
    that its row will carry; such a bundle has no tensors.
    """

    session: str
    rank: int
    step: int
    seq: int
    api: str
    phase: str
    args: Tree
    kwargs: Tree
    result: Tree
    mutated: Tree
    context: Mapping[str, Any]
    producer: Mapping[str, Any]
    time: float
    origin: str | None = None
    skip: str | None = None
    format: int = FORMAT
    digest: str = ""

    @property
    def key(self) -> Key:
        """What a call is known by: no two calls share it."""
        return self.session, self.rank, self.step, self.seq

    @property
    def placements(self) -> tuple[str, ...]:
        """How the distributed tensors among arguments and results are placed, each way once."""
        return tuple(dict.fromkeys(_placements((self.args, self.kwargs, self.result, self.mutated))))


@dataclass(frozen=True)
class Bundle:
    """A call with its tensors (on the CPU, contiguous). Values are decoded when asked for, in fresh containers."""

    header: CallHeader
    tensors: Mapping[str, Tensor] = field(repr=False)

    @classmethod
    def build(
        cls,
        *,
        session: str,
        rank: int,
        step: int,
        seq: int,
        api: str,
        phase: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: Any,
        mutated: Mapping[str, Any] | None = None,
        context: Mapping[str, Any],
        producer: Mapping[str, Any],
        time: float,
        origin: str | None = None,
    ) -> Bundle:
        """Encode a call. Contiguous CPU tensors are taken as they are, without a copy.

        `mutated` maps places such as `args[0]` or `kwargs.out` to the values that the call left there. Raises NotRepresentable.
        """
        sink = TensorSink()
        header = CallHeader(
            session,
            rank,
            step,
            seq,
            api,
            phase,
            encode_tree(tuple(args), sink, "args"),
            encode_tree(dict(kwargs), sink, "kwargs"),
            encode_tree(result, sink, "result"),
            encode_tree(dict(mutated or {}), sink, "mutated"),
            context,
            producer,
            time,
            origin,
        )
        return cls(check_header(header), sink.tensors)

    @classmethod
    def unreplayable(
        cls,
        *,
        session: str,
        rank: int,
        step: int,
        seq: int,
        api: str,
        phase: str,
        reason: str,
        context: Mapping[str, Any],
        producer: Mapping[str, Any],
        time: float,
        origin: str | None = None,
    ) -> Bundle:
        """A call that a bundle cannot hold, so that it still gets its row: the header alone, with the reason."""
        empty: Tree = {"$dict": []}
        header = CallHeader(
            session,
            rank,
            step,
            seq,
            api,
            phase,
            {"$tuple": []},
            empty,
            None,
            empty,
            context,
            producer,
            time,
            origin,
            reason,
        )
        return cls(check_header(header), {})

    @cached_property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments as they were before the call."""
        value = decode_tree(self.header.args, self.tensors)
        if not isinstance(value, tuple):
            raise BundleMalformed(f"args is {type(value).__name__}, not a tuple")
        return value

    @cached_property
    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments as they were before the call."""
        return self._named("kwargs")

    @cached_property
    def result(self) -> Any:
        """What the call returned."""
        return decode_tree(self.header.result, self.tensors)

    @cached_property
    def mutated(self) -> dict[str, Any]:
        """Arguments that the call wrote to, by place (`args[0]`, `kwargs.out`), as they were after it."""
        return self._named("mutated")

    def _named(self, part: str) -> dict[str, Any]:
        value = decode_tree(getattr(self.header, part), self.tensors)
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise BundleMalformed(f"{part} is no dict with string keys")
        return value

    @property
    def nbytes(self) -> int:
        """Bytes of tensor data."""
        return sum(nbytes(tensor) for tensor in self.tensors.values())


def _placements(tree: Tree) -> Iterator[str]:
    if isinstance(tree, dict):
        if isinstance(tree.get("placements"), str):
            yield tree["placements"]
        yield from _placements(list(tree.values()))
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from _placements(item)


def check_header(header: CallHeader) -> CallHeader:
    """The header itself if its plain fields are of the right kind; BundleMalformed names the one that is not."""
    numbers = (header.rank, header.step, header.seq)
    for name, number in zip(("rank", "step", "seq"), numbers, strict=True):
        if type(number) is not int or not 0 <= number < 10**9:
            raise BundleMalformed(f"{name} is {number!r}; it must be an integer from 0 to 999999999")
    if not is_api(header.api):
        raise BundleMalformed(f"api is {header.api!r}; it must look like Functional.linear.4")
    if header.phase not in PHASES:
        raise BundleMalformed(f"phase is {header.phase!r}; it must be forward or backward")
    if not is_session(header.session):
        raise BundleMalformed(
            f"session is {header.session!r}; it must be 1 to 100 letters, digits, '.', '_' and '-', a letter or digit first"
        )
    if type(header.time) not in (int, float) or not math.isfinite(header.time):
        raise BundleMalformed(f"time is {header.time!r}; it must be seconds since 1970")
    for name in ("origin", "skip"):
        if not isinstance(getattr(header, name), str | None):
            raise BundleMalformed(f"{name} is {getattr(header, name)!r}; it must be text or null")
    for name in ("context", "producer"):
        if not isinstance(getattr(header, name), Mapping):
            raise BundleMalformed(f"{name} is {getattr(header, name)!r}; it must be an object")
    return header

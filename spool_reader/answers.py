"""One bundle's whole way through a worker: load, check, judge, keep if it failed; and what goes back to the parent."""

from __future__ import annotations

import errno
import os
import re
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spool import Bundle, BundleError, BundleSource, SpoolUnavailable, dump_bundle

from .judging import Judge
from .rows import Finding, encode_row, finding_of

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Task:
    """One claimed bundle; `place` is the (rank, step, seq) that its name and folder say."""

    ticket: int
    source: BundleSource
    place: tuple[int, int, int]


@dataclass(frozen=True)
class Judged:
    """The bundle has its row."""

    ticket: int
    finding: Finding
    line: bytes


@dataclass(frozen=True)
class Unloadable:
    """The bundle cannot be used and belongs into quarantine."""

    ticket: int
    reason: str


@dataclass(frozen=True)
class Unread:
    """The file could not be read: gone (another reader has it), out of reach, or `refused` to this user."""

    ticket: int
    reason: str
    refused: bool


@dataclass(frozen=True)
class Died:
    """The worker process ended, or was ended, while it was on this bundle."""

    ticket: int
    reason: str


Answer = Judged | Unloadable | Unread | Died


def answer(task: Task, judge: Judge, save_errors: Path | None) -> Judged | Unloadable | Unread:
    """Load, judge and record one bundle."""
    started = time.perf_counter()
    try:
        bundle = task.source.load()
        # Decoded here, so that a tree that cannot be read is the bundle's fault and not the call's.
        _ = bundle.args, bundle.kwargs, bundle.result, bundle.mutated
    except BundleError as error:
        return Unloadable(task.ticket, str(error))
    except SpoolUnavailable as error:
        number = getattr(error.__cause__, "errno", None)
        return Unread(task.ticket, str(error), number in (errno.EACCES, errno.EPERM))
    header = bundle.header
    if (header.rank, header.step, header.seq) != task.place:
        said = "rank {} step {} seq {}"
        return Unloadable(
            task.ticket,
            f"its header says {said.format(header.rank, header.step, header.seq)}, "
            f"its place {said.format(*task.place)}: misplaced or forged",
        )
    loaded = time.perf_counter()
    row = judge.row(bundle)
    row["timings"]["load"] = round(loaded - started, 6)
    if save_errors is not None and row["verdict"] == "error":
        _save(row, bundle, save_errors)
    row["timings"]["total"] = round(time.perf_counter() - started, 6)
    return Judged(task.ticket, finding_of(row), encode_row(row))


def _save(row: dict[str, Any], bundle: Bundle, folder: Path) -> None:
    """Keep a failing bundle, and say in its row how to see the verdict again."""
    header = bundle.header
    name = f"{header.session}-rank{header.rank}-step{header.step}-{header.seq:08d}.{header.api}"
    path = folder.resolve() / f"{_UNSAFE.sub('_', name)[:200]}.safetensors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.write_bytes(dump_bundle(bundle))
        part.replace(path)
    except OSError as error:
        row["notes"].append(f"the failing bundle could not be kept in {folder}: {error.strerror}")
    else:
        row["bundle"] = str(path)
        row["reproduce"] = f"spool-check replay {shlex.quote(str(path))}"

"""Looking without taking: replay some files, show what one holds, tell the state of a spool."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from spool import Bundle, BundleError, open_spool, read_bundle

from .device import open_device
from .judging import Judge, JudgeOptions
from .trees import named_leaves


def replay_files(
    paths: Iterable[Path], *, device: str = "auto", options: JudgeOptions | None = None
) -> Iterator[dict[str, Any]]:
    """The row of each file, judged here and now; nothing is written or deleted."""
    judge = Judge(open_device(device), options or JudgeOptions())
    for path in paths:
        bundle = _read(path)
        row = judge.row(bundle)
        row["bundle"] = str(path)
        yield row


def inspect_file(path: Path) -> dict[str, Any]:
    """What a bundle holds, by place in the call; nothing of it is run. Its digest has been checked."""
    bundle = _read(path)
    header = bundle.header
    shown = {
        name: getattr(header, name)
        for name in ("format", "session", "rank", "step", "seq", "api", "phase", "origin", "skip", "time", "digest")
    }
    return {
        "path": str(path),
        **shown,
        "context": dict(header.context),
        "producer": dict(header.producer),
        "nbytes": bundle.nbytes,
        "values": dict(_values(bundle)),
    }


def _read(path: Path) -> Bundle:
    """The bundle, with the file's name in whatever is wrong with it."""
    try:
        return read_bundle(path)
    except BundleError as error:
        raise type(error)(f"{path}: {error}") from error
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}; give the path of a .safetensors file of a spool") from error


def _values(bundle: Bundle) -> Iterator[tuple[str, str]]:
    parts = {"args": bundle.args, "kwargs": bundle.kwargs, "result": bundle.result, "after": bundle.mutated}
    for name, tree in parts.items():
        for path, leaf in named_leaves(tree, name):
            yield path, _described(leaf)


def _described(leaf: Any) -> str:
    if not isinstance(leaf, torch.Tensor):
        return repr(leaf)[:200]
    text = f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
    if leaf.numel() == 0 or leaf.dtype is torch.bool or leaf.is_complex():
        return text
    wide = leaf.detach().to(torch.float64)
    return f"{text} min {wide.min().item():.6g} max {wide.max().item():.6g} mean {wide.mean().item():.6g}"


def status(spool: str | Path) -> dict[str, Any]:
    """Counts of a spool and what its writers say of themselves, as numbers for `--json` or for people."""
    with open_spool(spool) as opened:
        sessions = [asdict(record) for record in opened.sessions()]
        now = time.time()
        for session in sessions:
            # Between two hosts' clocks: for people only, nothing decides by it.
            session["heartbeat_age_s"] = round(now - session["heartbeat"], 1)
        return {"spool": opened.url, **asdict(opened.stats()), "sessions": sessions}

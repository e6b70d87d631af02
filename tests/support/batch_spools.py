"""Leftover spools of a few calls, and the command line in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from processes import ROOT, environment

from spool import Bundle, SessionInfo, open_spool


def add_call(
    rank: int,
    step: int,
    seq: int,
    *,
    api: str | None = None,
    dtype: torch.dtype = torch.float32,
    off: float = 0.0,
    session: str | None = None,
    torch_version: str = "2.13.0",
) -> Bundle:
    """`x + x`, or `x * x` for a `mul`, as a device computed it that is `off` by so much."""
    x = torch.tensor([1.0, 2.0, 3.0]).to(dtype)
    return Bundle.build(
        session=session or f"run1-rank{rank}",
        rank=rank,
        step=step,
        seq=seq,
        api=api or f"Torch.add.{seq}",
        phase="forward",
        args=(x, x),
        kwargs={},
        result=(x * x if ".mul." in (api or "") else x + x) + off,
        context={},
        producer={"device": "npu:0", "torch": torch_version},
        time=0.0,
    )


def fill(spool: Path, bundles: list[Bundle]) -> None:
    """Publish into a spool and close its sessions, as a training that has ended."""
    with open_spool(spool, create=True) as opened:
        sessions = {}
        for bundle in bundles:
            name, rank = bundle.header.session, bundle.header.rank
            if (name, rank) not in sessions:
                sessions[name, rank] = opened.open_session(SessionInfo(name, rank, "host", 1, "0", 0.0))
            opened.publish(bundle)
        for session in sessions.values():
            session.close("closed", {})


def spool_check(*words: Any, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """`spool-check words…` in a process of its own."""
    command = [sys.executable, "-m", "spool_check", *map(str, words)]
    return subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=timeout, check=False
    )

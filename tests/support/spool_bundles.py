"""Bundles, sessions and small helpers for the spool's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from spool import Bundle, Claim, SessionInfo, Spool, SpoolOptions

# No reserve: tests run where little space may be free.
PLAIN = SpoolOptions(reserve_bytes=0)


def call(
    seq: int = 0,
    *args: Any,
    rank: int = 0,
    step: int = 0,
    session: str = "s1",
    api: str | None = None,
    kwargs: dict[str, Any] | None = None,
    result: Any = None,
    mutated: dict[str, Any] | None = None,
) -> Bundle:
    """The bundle of one call; a small tensor where no arguments are given."""
    return Bundle.build(
        session=session,
        rank=rank,
        step=step,
        seq=seq,
        api=api or f"Torch.add.{seq}",
        phase="forward",
        args=args or (torch.arange(4.0),),
        kwargs=kwargs or {},
        result=result,
        mutated=mutated,
        context={"grad": True},
        producer={"host": "h", "pid": 1, "version": "0.1.0"},
        time=1.5,
    )


def info(session: str = "s1", rank: int = 0) -> SessionInfo:
    """What a writer says of itself."""
    return SessionInfo(session, rank, "h", 1, "0.1.0", 1.0)


def drain(spool: Spool, **kwargs: Any) -> list[tuple[str, int, int, int]]:
    """Claim, load and finish everything that waits; the keys in the order in which they came."""
    keys = []
    while (claim := spool.claim(**kwargs)) is not None:
        keys.append(claim.load().header.key)
        assert claim.done()
    return keys


def taken(spool: Spool, timeout: float = 0.0) -> Claim:
    """A claim that must be there."""
    claim = spool.claim(timeout)
    assert claim is not None
    return claim


def files_below(root: Path) -> list[str]:
    """Every file under a folder but the janitor's lock."""
    found = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.startswith(".janitor"))

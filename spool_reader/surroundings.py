"""The global state that a recorded call ran in, applied for one replay and taken back after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch


def recorded_autocast(context: Mapping[str, Any], producer: Mapping[str, Any]) -> tuple[str, torch.dtype] | None:
    """Device type and dtype of the autocast region that the call stood in; the producer's own device first."""
    regions = context.get("autocast")
    if not isinstance(regions, Mapping):
        return None
    own = str(producer.get("device", "")).partition(":")[0]
    for kind in sorted(regions, key=lambda kind: kind != own):
        dtype = float_dtype(regions[kind])
        if dtype is not None:
            return kind, dtype
    return None


def recorded_default_dtype(context: Mapping[str, Any]) -> torch.dtype:
    """The default dtype that the call saw."""
    return float_dtype(context.get("default_dtype")) or torch.float32


def float_dtype(name: object) -> torch.dtype | None:
    """A float dtype by its name, such as `bfloat16` or `torch.bfloat16`; None for anything else."""
    found = getattr(torch, name.removeprefix("torch."), None) if isinstance(name, str) else None
    return found if isinstance(found, torch.dtype) and found.is_floating_point else None


@contextmanager
def surroundings(device_type: str, autocast: torch.dtype | None, default_dtype: torch.dtype) -> Iterator[None]:
    """No gradients, this autocast dtype (None: off) and this default dtype.

    Nothing that may be replayed gives other values with gradients on, so the recorded grad mode needs no restoring.
    """
    before = torch.get_default_dtype()
    if default_dtype is not before:
        torch.set_default_dtype(default_dtype)
    try:
        with torch.no_grad():
            if autocast is None and not torch._C._is_any_autocast_enabled():
                yield
            else:
                with torch.autocast(device_type, autocast, enabled=autocast is not None, cache_enabled=False):
                    yield
    finally:
        if default_dtype is not before:
            torch.set_default_dtype(before)

"""Who writes: rank, session, producer; and the state of torch around a call."""

from __future__ import annotations

import functools
import os
import secrets
import socket
import time
from collections.abc import Mapping
from typing import Any

import torch

from spool import ConfigError, __version__

from .device import autocast_regions, tf32_flags

# What launchers set, the first that is there wins.
_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def current_rank() -> int:
    """This process's rank: from torch.distributed if it is initialised, else from the launcher's environment, else 0."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    for name in _RANK_VARIABLES:
        value = os.environ.get(name)
        if value:
            if not value.isdecimal():
                raise ConfigError(f"environment: {name} is {value!r}; it must be the rank, an integer from 0 on")
            return int(value)
    return 0


def new_session() -> str:
    """A name for one run of one process: time, process and chance."""
    return f"{time.strftime('%Y%m%d%H%M%S', time.gmtime())}-{os.getpid()}-{secrets.token_hex(4)}"


def producer() -> dict[str, Any]:
    """Host, process and versions; the device is added by each call."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "torch": str(torch.__version__), "version": __version__}


def surroundings() -> Mapping[str, Any]:
    """What decides a call's result besides its arguments; the same object as long as nothing of it changes."""
    return _described(
        tuple(autocast_regions().items()),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        tf32_flags(),
    )


@functools.lru_cache(maxsize=64)
def _described(
    autocast: tuple[tuple[str, str], ...],
    grad: bool,
    inference: bool,
    default_dtype: torch.dtype,
    deterministic: bool,
    tf32: tuple[bool, bool],
) -> Mapping[str, Any]:
    return {
        "autocast": dict(autocast),
        "grad": grad,
        "inference": inference,
        "default_dtype": str(default_dtype).removeprefix("torch."),
        "deterministic": deterministic,
        "tf32": {"matmul": tf32[0], "cudnn": tf32[1]},
    }

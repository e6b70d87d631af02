"""The one place of the writer that knows devices: how elements get into the host's memory, and where a tensor lives."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from .pool import SMALLEST, Pool


def to_host(tensor: Tensor, pool: Pool) -> Tensor:
    """A new tensor in host memory with the same elements and, where they are dense, the same strides."""
    if tensor.numel() * tensor.element_size() >= SMALLEST:
        return pool.empty_like(tensor).copy_(tensor)
    return tensor.clone() if tensor.is_cpu else tensor.to("cpu")


@functools.lru_cache(maxsize=256)
def _name(device: torch.device) -> str:
    return str(device)


def device_of(values: Any) -> str | None:
    """The device of the first tensor in a call's values; None when there is none."""
    if isinstance(values, Tensor):
        return _name(values.device)
    inner = values.values() if isinstance(values, dict) else values if isinstance(values, tuple | list) else ()
    return next((found for found in map(device_of, inner) if found is not None), None)


def autocast_regions() -> dict[str, str]:
    """Device types whose autocast is on → its dtype."""
    if not torch._C._is_any_autocast_enabled():
        return {}
    found = {}
    for kind in ("cpu", "cuda", torch._C._get_privateuse1_backend_name()):
        try:
            if torch.is_autocast_enabled(kind):
                found[kind] = str(torch.get_autocast_dtype(kind)).removeprefix("torch.")
        except (TypeError, RuntimeError):
            # Older torch asks without a device type; a build may not know this kind.
            continue
    return found


def tf32_flags() -> tuple[bool, bool]:
    """Whether this process lets its accelerator round products of matrices, and convolutions, to TF32."""
    try:
        return torch._C._get_cublas_allow_tf32(), torch._C._get_cudnn_allow_tf32()
    except RuntimeError:
        # Torch refuses the old question once the training has used the new switches.
        cudnn: Any = torch.backends.cudnn
        return _is_tf32(torch.backends.cuda.matmul), _is_tf32(cudnn.conv)


def _is_tf32(switch: Any) -> bool:
    return str(switch.fp32_precision) == "tf32"

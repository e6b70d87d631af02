"""The one place of the writer that knows devices: how elements get into the host's memory, and where a tensor lives."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from .pool import SMALLEST, Pool


class Accelerator:
    """What recording needs of a kind of device: copies that the training need not wait for, and their end.

    A copy into pinned memory is queued on the device's current stream, behind the call that made the values and before whatever
    changes them, so it holds what they were at that moment. Pinned memory is used again by torch's own allocator.
    """

    def __init__(self, kind: str) -> None:
        self._module: Any = getattr(torch, kind, None)
        self._queues = hasattr(self._module, "Event") and hasattr(self._module, "device")

    def copy(self, tensor: Tensor) -> Tensor:
        """A host tensor that will hold the elements once `queued` says so; the strides of a dense tensor are kept."""
        if not self._queues:
            return tensor.to("cpu")
        model = torch.empty_like(tensor, device="meta")
        room = torch.empty_strided(model.size(), model.stride(), dtype=tensor.dtype, device="cpu", pin_memory=True)
        return room.copy_(tensor, non_blocking=True)

    def queued(self, device: torch.device) -> Any:
        """An event after everything that has been queued on the device's current stream; None where copies have waited."""
        if not self._queues:
            return None
        with self._module.device(device):
            event = self._module.Event()
            event.record()
        return event


@functools.cache
def accelerator(kind: str) -> Accelerator:
    """The accelerator of a type of device, such as cuda or npu."""
    return Accelerator(kind)


class HostCopies:
    """The copies of one moment: into pooled memory from the host, queued from an accelerator."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._devices: set[torch.device] = set()

    def copy(self, tensor: Tensor) -> Tensor:
        """A new tensor in host memory with the same elements and, where they are dense, the same strides."""
        if not self.is_host(tensor):
            self._devices.add(tensor.device)
            return accelerator(tensor.device.type).copy(tensor)
        if tensor.numel() * tensor.element_size() >= SMALLEST:
            return self._pool.empty_like(tensor).copy_(tensor)
        return tensor.clone()

    @staticmethod
    def is_host(tensor: Tensor) -> bool:
        """Whether the elements are in the host's memory."""
        return tensor.is_cpu

    def events(self) -> tuple[Any, ...]:
        """What must be waited for before the copies are read."""
        found = (accelerator(device.type).queued(device) for device in self._devices)
        return tuple(event for event in found if event is not None)


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

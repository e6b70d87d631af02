"""Where calls are replayed: the only file that knows device names, their caches and their ways to run out of memory."""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import Any

import torch

from spool import ConfigError

_NAME = re.compile(r"(?P<type>cpu|cuda|npu)(?::(?P<index>\d+))?")
_NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "alloc failed",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
# Where `auto` looks, in this order, before it takes the CPU.
_ACCELERATORS = ("cuda", "npu")


class Device:
    """The CPU, and the base of every other device."""

    def __init__(self, name: str = "cpu") -> None:
        self.torch = torch.device(name)

    @property
    def name(self) -> str:
        """As it stands in a row, such as `cuda:0`."""
        return str(self.torch)

    @property
    def type(self) -> str:
        """As torch's autocast wants it, such as `cuda`."""
        return self.torch.type

    @property
    def is_cpu(self) -> bool:
        """Whether replaying here is already replaying on the CPU."""
        return self.type == "cpu"

    def prepare(self, *, tf32: bool = False) -> None:
        """Set up this process: the reference computes in full precision unless TF32 is asked for."""
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor on this device; the very same object where it is there already."""
        return tensor.to(self.torch)

    def sync(self) -> None:
        """Wait until everything asked for is computed, so that timings and errors belong to the call."""

    def empty_cache(self) -> None:
        """Give memory that nothing uses back."""

    def is_oom(self, error: BaseException) -> bool:
        """Whether the error says that there was not enough memory."""
        if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
            return True
        return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


class Accelerator(Device):
    """A device with a torch module of its own, such as `torch.cuda`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._module: Any = _module(self.type)

    def prepare(self, *, tf32: bool = False) -> None:
        super().prepare(tf32=tf32)
        self._module.set_device(self.torch)

    def sync(self) -> None:
        self._module.synchronize(self.torch)

    def empty_cache(self) -> None:
        self._module.empty_cache()


def open_device(name: str) -> Device:
    """The device that a user named: `auto`, `cpu`, `cuda`, `cuda:1`, `npu`, `npu:1`."""
    name = _chosen(name)
    return Device() if name == "cpu" else Accelerator(name)


def worker_devices(name: str, workers: int | None) -> list[str]:
    """One device name for each worker: over all devices of the kind unless one is named; by default one a device."""
    chosen = _chosen(name)
    kind, _, _ = chosen.partition(":")
    named = name != "auto" and ":" in name
    names = [chosen] if kind == "cpu" or named else [f"{kind}:{i}" for i in range(_count(kind))]
    count = len(names) if workers is None else workers
    return [names[i % len(names)] for i in range(max(count, 1))]


def _chosen(name: str) -> str:
    if name == "auto":
        name = next((kind for kind in _ACCELERATORS if _count(kind)), "cpu")
    match = _NAME.fullmatch(name)
    if match is None:
        raise ConfigError(f"device = {name!r}: unknown; use auto, cpu, cuda, cuda:N, npu or npu:N")
    if match["type"] == "cpu":
        return "cpu"
    count, index = _count(match["type"]), int(match["index"] or 0)
    if index >= count:
        has = f"{count} of them" if count else "none"
        raise ConfigError(f"device = {name!r}: this host has {has}; use auto or cpu, or run where the device is")
    return f"{match['type']}:{index}"


def _count(kind: str) -> int:
    module = _module(kind)
    return int(module.device_count()) if module is not None and module.is_available() else 0


def _module(kind: str) -> Any:
    """torch's module for a kind of device; an extension that brings one is imported where it is installed."""
    if not hasattr(torch, kind) and importlib.util.find_spec(f"torch_{kind}") is not None:
        importlib.import_module(f"torch_{kind}")
    return getattr(torch, kind, None)

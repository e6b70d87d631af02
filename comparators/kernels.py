"""The few array operations that the sweep is made of: NumPy for tensors in host memory, torch on a device.

NumPy's comparisons and counts are four to six times as fast as torch's on a CPU chunk, torch's conversions between
float formats ten times as fast as NumPy's; so the host kernels convert with torch and compute with NumPy.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch

Array = Any  # a NumPy array or a tensor, as the kernels at hand have it


class Kernels(Protocol):
    """Operations on one chunk; `slot` names the preallocated buffer that takes the result."""

    chunk: int

    def load(self, flat: torch.Tensor, start: int, stop: int, slot: int) -> Array: ...
    def rounded(self, flat: torch.Tensor, start: int, stop: int, dtype: torch.dtype) -> Array: ...
    def sub(self, a: Array, b: Array, slot: int) -> Array: ...
    def abs(self, a: Array, slot: int) -> Array: ...
    def add_scalar(self, a: Array, value: float, slot: int) -> Array: ...
    def div(self, a: Array, b: Array, slot: int) -> Array: ...
    def ulp_unit(self, magnitude: Array, smallest: float, slot: int) -> Array: ...
    def double(self, a: Array, slot: int) -> Array: ...
    def max(self, a: Array) -> float: ...
    def min(self, a: Array) -> float: ...
    def sum(self, double: Array) -> float: ...
    def dot(self, a: Array, b: Array) -> float: ...
    def count_above(self, a: Array, value: Any) -> int: ...
    def count_below(self, a: Array, value: Any) -> int: ...
    def places_up_to(self, a: Array, value: float) -> Array: ...
    def argmax(self, a: Array) -> int: ...
    def take(self, a: Array, places: Array) -> Array: ...
    def clear(self, a: Array, places: Array) -> None: ...
    def finite(self, a: Array, b: Array, largest: float) -> Array: ...
    def places(self, mask: Array) -> Array: ...
    def invert(self, mask: Array) -> Array: ...


class HostKernels:
    """NumPy on views of torch buffers."""

    def __init__(self, work: torch.dtype, chunk: int) -> None:
        self.chunk = chunk
        single = work is torch.float32
        self._work = work
        self._buffers = [torch.empty(chunk, dtype=work) for _ in range(8)]
        self._arrays = [buffer.numpy() for buffer in self._buffers]
        self._doubles = [np.empty(chunk, np.float64) for _ in range(5)] if single else []
        self._mask = np.empty(chunk, np.bool_)
        self._bits = np.int32 if single else np.int64
        self._exponent = np.int32(0x7F800000) if single else np.int64(0x7FF0000000000000)

    def load(self, flat: torch.Tensor, start: int, stop: int, slot: int) -> Array:
        part = flat[start:stop]
        if part.dtype is self._work:
            return part.numpy()
        self._buffers[slot][: stop - start].copy_(part)
        return self._arrays[slot][: stop - start]

    def rounded(self, flat: torch.Tensor, start: int, stop: int, dtype: torch.dtype) -> Array:
        return flat[start:stop].to(dtype).to(self._work).numpy()

    def sub(self, a: Array, b: Array, slot: int) -> Array:
        return np.subtract(a, b, out=self._arrays[slot][: len(a)])

    def abs(self, a: Array, slot: int) -> Array:
        return np.absolute(a, out=self._arrays[slot][: len(a)])

    def add_scalar(self, a: Array, value: float, slot: int) -> Array:
        return np.add(a, value, out=self._arrays[slot][: len(a)])

    def div(self, a: Array, b: Array, slot: int) -> Array:
        return np.divide(a, b, out=self._arrays[slot][: len(a)])

    def ulp_unit(self, magnitude: Array, smallest: float, slot: int) -> Array:
        out = self._arrays[slot][: len(magnitude)]
        np.bitwise_and(magnitude.view(self._bits), self._exponent, out=out.view(self._bits))
        return np.maximum(out, smallest, out=out)

    def double(self, a: Array, slot: int) -> Array:
        if not self._doubles:
            return a
        out = self._doubles[slot][: len(a)]
        np.copyto(out, a)
        return out

    def max(self, a: Array) -> float:
        return float(np.maximum.reduce(a))

    def min(self, a: Array) -> float:
        return float(np.minimum.reduce(a))

    def sum(self, double: Array) -> float:
        return float(np.add.reduce(double))

    def dot(self, a: Array, b: Array) -> float:
        return float(np.dot(a, b))

    def count_above(self, a: Array, value: Any) -> int:
        return int(np.count_nonzero(np.greater(a, value, out=self._mask[: len(a)])))

    def count_below(self, a: Array, value: Any) -> int:
        return int(np.count_nonzero(np.less(a, value, out=self._mask[: len(a)])))

    def places_up_to(self, a: Array, value: float) -> Array:
        return np.flatnonzero(np.less_equal(a, value, out=self._mask[: len(a)]))

    def argmax(self, a: Array) -> int:
        return int(a.argmax())

    def take(self, a: Array, places: Array) -> Array:
        return a[places]

    def clear(self, a: Array, places: Array) -> None:
        a[places] = 0

    def finite(self, a: Array, b: Array, largest: float) -> Array:
        return np.isfinite(a) & (np.absolute(b) < largest)

    def places(self, mask: Array) -> Array:
        return np.flatnonzero(mask)

    def invert(self, mask: Array) -> Array:
        return ~mask


class DeviceKernels:
    """torch on the tensors' own device; each figure that comes back is one synchronisation, so chunks are large."""

    def __init__(self, device: torch.device, work: torch.dtype, chunk: int) -> None:
        self.chunk = chunk
        self._work = work
        self._bits = torch.int32 if work is torch.float32 else torch.int64
        self._exponent = 0x7F800000 if work is torch.float32 else 0x7FF0000000000000
        self._buffers = [torch.empty(chunk, dtype=work, device=device) for _ in range(8)]

    def load(self, flat: torch.Tensor, start: int, stop: int, slot: int) -> Array:
        return flat[start:stop].to(self._work)

    def rounded(self, flat: torch.Tensor, start: int, stop: int, dtype: torch.dtype) -> Array:
        return flat[start:stop].to(dtype).to(self._work)

    def sub(self, a: Array, b: Array, slot: int) -> Array:
        return torch.sub(a, b, out=self._buffers[slot][: len(a)])

    def abs(self, a: Array, slot: int) -> Array:
        return torch.abs(a, out=self._buffers[slot][: len(a)])

    def add_scalar(self, a: Array, value: float, slot: int) -> Array:
        return torch.add(a, value, out=self._buffers[slot][: len(a)])

    def div(self, a: Array, b: Array, slot: int) -> Array:
        return torch.div(a, b, out=self._buffers[slot][: len(a)])

    def ulp_unit(self, magnitude: Array, smallest: float, slot: int) -> Array:
        unit = torch.bitwise_and(magnitude.view(self._bits), self._exponent).view(self._work)
        return torch.clamp_min(unit, smallest, out=self._buffers[slot][: len(magnitude)])

    def double(self, a: Array, slot: int) -> Array:
        return a.to(torch.float64)

    def max(self, a: Array) -> float:
        return float(a.max())

    def min(self, a: Array) -> float:
        return float(a.min())

    def sum(self, double: Array) -> float:
        return float(double.sum())

    def dot(self, a: Array, b: Array) -> float:
        return float(torch.dot(a, b))

    def count_above(self, a: Array, value: Any) -> int:
        return int(torch.count_nonzero(a > value))

    def count_below(self, a: Array, value: Any) -> int:
        return int(torch.count_nonzero(a < value))

    def places_up_to(self, a: Array, value: float) -> Array:
        return torch.nonzero(a <= value).view(-1)

    def argmax(self, a: Array) -> int:
        return int(a.argmax())

    def take(self, a: Array, places: Array) -> Array:
        return a[places]

    def clear(self, a: Array, places: Array) -> None:
        a[places] = 0

    def finite(self, a: Array, b: Array, largest: float) -> Array:
        return torch.isfinite(a) & (b.abs() < largest)

    def places(self, mask: Array) -> Array:
        return torch.nonzero(mask).view(-1)

    def invert(self, mask: Array) -> Array:
        return ~mask


def kernels_for(device: torch.device, work: torch.dtype, size: int, chunk: int | None) -> Kernels:
    """Kernels with buffers for chunks that stay in a core's cache, or that keep a device busy."""
    if device.type == "cpu":
        best = 16384 if work is torch.float32 else 8192
        return HostKernels(work, max(1, min(chunk or best, size)))
    return DeviceKernels(device, work, max(1, min(chunk or 1 << 24, size)))

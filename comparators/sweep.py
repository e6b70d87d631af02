"""One pass over a pair of float outputs: every metric of a comparison, in chunks that stay in cache.

N is the device's output, B the bench. Arithmetic is in float32 where both fit it, in float64 otherwise; every sum is
in float64, so that the size of a chunk changes no figure beyond rounding in the fifteenth digit. Elements where N, or
B in N's dtype, is inf or nan are set aside and counted; the remaining ones make the metrics.

In host memory the compiled loops of `native` do it where there is a C compiler; the loops here are for devices, and for
hosts without one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch

from .dtypes import Format
from .kernels import Array, Kernels, kernels_for
from .native import library
from .native_sweep import NativeSweep
from .totals import Sides, Thresholds, Totals, scaled_cosine, set_aside

_NARROW = (torch.float16, torch.float32, torch.bfloat16)


def sweep(
    device: torch.Tensor,
    bench: torch.Tensor,
    form: Format,
    eps: float,
    thresholds: Thresholds,
    *,
    sides: bool = True,
    chunk: int | None = None,
) -> Totals:
    """Add up a pair of equally shaped real float tensors on one device; `form` is the format of the judged dtype."""
    # One dimension of equal steps is still a view: the compiled loops read element after element.
    n, b = device.reshape(-1).contiguous(), bench.reshape(-1).contiguous()
    if n.dtype.itemsize == 1:
        n, b = n.to(torch.float32), b.to(torch.float32) if b.dtype.itemsize == 1 else b
    work = torch.float32 if n.dtype in _NARROW and b.dtype in _NARROW else torch.float64
    widened = device.dtype if device.dtype is not torch.bfloat16 else torch.float32
    round_to = None if b.dtype in (widened, device.dtype) else widened
    compiled = library() if n.device.type == "cpu" else None
    if compiled is not None:
        native = NativeSweep(compiled, work, form, eps, thresholds, round_to, sides=sides)
        return _with_cosine(native.run(n, b, chunk), n, b)
    kernels = kernels_for(n.device, work, n.numel(), chunk)
    run = _Sweep(kernels, form, eps, thresholds, round_to)
    run.totals.sides = Sides() if sides else None
    with np.errstate(all="ignore"):
        for start in range(0, n.numel(), kernels.chunk):
            run.add(n, b, start, min(start + kernels.chunk, n.numel()))
    return _with_cosine(run.totals, n, b)


def _with_cosine(totals: Totals, n: torch.Tensor, b: torch.Tensor) -> Totals:
    s = totals.sides
    if s is not None and totals.size and not math.isfinite(s.device_squares + s.bench_squares):
        s.cosine = scaled_cosine(n, b)
    return totals


@dataclass
class _Sweep:
    kernels: Kernels
    form: Format
    eps: float
    thresholds: Thresholds
    round_to: torch.dtype | None
    totals: Totals = field(default_factory=Totals)

    def add(self, flat_n: torch.Tensor, flat_b: torch.Tensor, start: int, stop: int) -> None:
        k, t = self.kernels, self.totals
        n = k.load(flat_n, start, stop, 0)
        b = k.load(flat_b, start, stop, 1)
        error = k.abs(k.sub(n, b, 2), 3)
        magnitude = k.abs(b, 4)
        bench_largest = k.max(magnitude)
        max_abs = k.max(error)
        origin: Array | None = None
        rounded: Array | None = None
        if not (max_abs < math.inf and bench_largest < self.form.largest):
            keep = k.finite(n, b, self.form.largest)
            origin = k.places(keep)
            if len(origin) < stop - start:
                wrong = k.places(k.invert(keep))
                set_aside(t, k.take(n, wrong), k.take(b, wrong), self.form, self.eps, self.thresholds.rtol)
                if len(origin) == 0:
                    return
                if self.round_to is not None:
                    rounded = k.take(k.rounded(flat_b, start, stop, self.round_to), origin)
                n, b = k.take(n, origin), k.take(b, origin)
                error = k.abs(k.sub(n, b, 2), 3)
                magnitude = k.abs(b, 4)
                bench_largest = k.max(magnitude)
                max_abs = k.max(error)
        size = len(n)
        t.size += size
        t.bench_largest = max(t.bench_largest, bench_largest)
        self._signs(n, b, rounded, flat_b, start, stop)
        if t.sides is not None:
            self._sides(t.sides, n, b, error, magnitude)
        if max_abs > t.max_abs:
            t.max_abs = max_abs
            t.max_abs_at = self._index(error, start, origin)
        self._errors(error, magnitude, max_abs, start, origin)

    def _index(self, values: Array, start: int, origin: Array | None) -> int:
        place = self.kernels.argmax(values)
        return start + (place if origin is None else int(origin[place]))

    def _signs(self, n: Array, b: Array, rounded: Array | None, flat_b: torch.Tensor, start: int, stop: int) -> None:
        """Error balance against the bench in the device's dtype, and unequal elements."""
        k, t = self.kernels, self.totals
        above, below = k.count_above(n, b), k.count_below(n, b)
        t.unequal += above + below
        if self.round_to is not None:
            if rounded is None:
                rounded = k.rounded(flat_b, start, stop, self.round_to)
            above, below = k.count_above(n, rounded), k.count_below(n, rounded)
        t.above += above
        t.below += below

    def _sides(self, s: Sides, n: Array, b: Array, error: Array, magnitude: Array) -> None:
        k = self.kernels
        s.device_max, s.device_min = max(s.device_max, k.max(n)), min(s.device_min, k.min(n))
        s.bench_max, s.bench_min = max(s.bench_max, k.max(b)), min(s.bench_min, k.min(b))
        wide_n, wide_b = k.double(n, 0), k.double(b, 1)
        s.device_sum += k.sum(wide_n)
        s.bench_sum += k.sum(wide_b)
        s.device_squares += k.dot(wide_n, wide_n)
        s.bench_squares += k.dot(wide_b, wide_b)
        s.products += k.dot(wide_n, wide_b)
        relative = k.div(error, magnitude, 5)
        largest = k.max(relative)
        # A nan (0 / 0) is shown, not hidden: once seen it stays.
        s.max_relative = largest if not largest <= s.max_relative else s.max_relative
        s.relative_below_thousandth += len(n) if largest < 1e-3 else k.count_below(relative, 1e-3)
        s.relative_below_five_thousandths += len(n) if largest < 5e-3 else k.count_below(relative, 5e-3)

    def _errors(self, error: Array, magnitude: Array, max_abs: float, start: int, origin: Array | None) -> None:
        k, t, limits = self.kernels, self.totals, self.thresholds
        size = len(error)
        self._ulps(error, magnitude)
        relative = k.div(error, k.add_scalar(magnitude, self.eps, 6), 5)
        largest = k.max(relative)
        t.within_hundredth += size if largest < 1e-2 else k.count_below(relative, 1e-2)
        t.within_thousandth += size if largest < 1e-3 else k.count_below(relative, 1e-3)
        t.within_ten_thousandth += size if largest < 1e-4 else k.count_below(relative, 1e-4)
        if largest > t.max_rel:
            t.max_rel = largest
            t.max_rel_at = self._index(relative, start, origin)
        if k.min(magnitude) <= limits.small_value:
            places = k.places_up_to(magnitude, limits.small_value)
            errors = k.take(error, places)
            t.small += len(places)
            t.small_above_atol += k.count_above(errors, limits.small_value_atol)
            t.small_above_benchmark_atol += k.count_above(errors, limits.benchmark_atol)
            errors = k.double(errors, 2)
            t.squares_small += k.dot(errors, errors)
            k.clear(relative, places)
            k.clear(error, places)
            largest = k.max(relative)
        t.max_rel_normal = max(t.max_rel_normal, largest)
        if largest > limits.rtol:
            t.normal_above_rtol += k.count_above(relative, limits.rtol)
        t.sum_rel_normal += k.sum(k.double(relative, 2))
        wide = k.double(error, 3)
        t.squares_normal += k.dot(wide, wide)

    def _ulps(self, error: Array, magnitude: Array) -> None:
        k, t, form = self.kernels, self.totals, self.form
        scale = 2.0**form.mantissa
        steps = k.div(error, k.ulp_unit(magnitude, 2.0**form.emin, 6), 5)
        largest = k.max(steps)
        if largest == math.inf:
            # The error of a bench near zero overflows float32 when counted in its ULPs.
            steps = k.double(error, 2) / k.double(k.ulp_unit(magnitude, 2.0**form.emin, 6), 3)
            largest = k.max(steps)
        t.max_ulp = max(t.max_ulp, largest * scale)
        if largest * scale > self.thresholds.ulp_threshold:
            t.ulp_above += k.count_above(steps, self.thresholds.ulp_threshold / scale)
        t.sum_ulp += k.sum(k.double(steps, 2)) * scale
        if largest > 0.5 / scale:
            reach = k.add_scalar(magnitude, self.eps, 6) * _like(magnitude, 1e-3)
            t.beyond_rounding += int(((steps > 0.5 / scale) & (error >= reach)).sum())


def _like(array: Array, value: float) -> Array:
    """A number in an array's own precision."""
    return array.dtype.type(value) if isinstance(array, np.ndarray) else value

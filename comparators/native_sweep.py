"""The sweep by the compiled loops: tensors as they are where their dtype fits, converted chunk by chunk otherwise."""

from __future__ import annotations

import ctypes
import functools
import math

import torch

from .dtypes import Format
from .native import COUNTS, FIGURES
from .totals import Sides, Thresholds, Totals, set_aside

_CHUNK = 32768
_Counts = ctypes.c_int64 * COUNTS
_Figures = ctypes.c_double * FIGURES
_START = [0.0] * 9 + [-math.inf, math.inf, -math.inf, math.inf] + [0.0] * 6


@functools.lru_cache(maxsize=256)
def _parameters(form: Format, eps: float, t: Thresholds) -> ctypes.Array[ctypes.c_double]:
    values = (eps, t.small_value, t.small_value_atol, t.benchmark_atol, t.rtol)
    unit = 2.0**-form.mantissa
    return (ctypes.c_double * 8)(*values, t.ulp_threshold * unit, 2.0**form.emin, unit / 2)


class NativeSweep:
    """One sweep; `run` adds up a pair of flat tensors in host memory."""

    def __init__(
        self,
        library: ctypes.CDLL,
        work: torch.dtype,
        form: Format,
        eps: float,
        thresholds: Thresholds,
        round_to: torch.dtype | None,
        *,
        sides: bool,
    ) -> None:
        self._work, self._form, self._eps, self._rtol = work, form, eps, thresholds.rtol
        self._round_to, self._with_sides = round_to, int(sides)
        self._library = library
        self._parameters = _parameters(form, eps, thresholds)
        self._counts, self._figures = _Counts(), _Figures(*_START)
        self._buffers: list[torch.Tensor] = []
        self._direct = False
        self._totals = Totals(sides=Sides() if sides else None)

    def run(self, n: torch.Tensor, b: torch.Tensor, chunk: int | None) -> Totals:
        """Add up all elements and return the totals."""
        size = n.numel()
        mixed = n.dtype is torch.float32 and b.dtype is torch.float64
        direct = mixed or (n.dtype is self._work and b.dtype is self._work and self._round_to is None)
        name = "sweep_mixed" if mixed else "sweep_float" if self._work is torch.float32 else "sweep_double"
        self._loop, self._special = getattr(self._library, name), getattr(self._library, f"{name}_special")
        self._direct = direct
        if direct:
            # The loops round the bench themselves.
            self._round_to = None
        step = max(1, chunk or (size if direct else _CHUNK))
        if step >= size:
            self._add_part(n, b, 0)
        else:
            self._buffers = [torch.empty(step, dtype=self._work) for _ in range(0 if direct else 3)]
            for start in range(0, size, step):
                stop = min(start + step, size)
                self._add_part(n[start:stop], b[start:stop], start)
        return self._finish()

    def _add_part(self, n: torch.Tensor, b: torch.Tensor, start: int) -> None:
        bench = rounded = self._load(b, 1)
        if self._round_to is not None:
            rounded = self._load(b.to(self._round_to), 2)
        self._add(self._load(n, 0), bench, rounded, start)

    def _load(self, part: torch.Tensor, slot: int) -> torch.Tensor:
        if self._direct or part.dtype is self._work:
            return part
        if not self._buffers:
            return part.to(self._work)
        return self._buffers[slot][: part.numel()].copy_(part)

    def _add(self, n: torch.Tensor, b: torch.Tensor, rounded: torch.Tensor, start: int) -> None:
        origin: torch.Tensor | None = None
        size = n.numel()
        if self._special(n.data_ptr(), b.data_ptr(), size, self._form.largest):
            fine = torch.isfinite(n) & torch.isfinite(b) & (b.abs() < self._form.largest)
            set_aside(self._totals, n[~fine], b[~fine], self._form, self._eps, self._rtol)
            origin = torch.nonzero(fine).view(-1)
            n, b, rounded = n[fine], b[fine], rounded[fine]
            size = n.numel()
            if size == 0:
                return
        counts, figures = self._counts, self._figures
        max_abs, max_rel = figures[0], figures[1]
        self._loop(
            n.data_ptr(),
            b.data_ptr(),
            rounded.data_ptr(),
            size,
            self._parameters,
            self._with_sides,
            counts,
            figures,
        )
        self._totals.size += size
        if figures[0] > max_abs:
            self._totals.max_abs_at = _place(counts[11], start, origin)
        if figures[1] > max_rel:
            self._totals.max_rel_at = _place(counts[12], start, origin)

    def _finish(self) -> Totals:
        t, scale = self._totals, 2.0**self._form.mantissa
        c, f = list(self._counts), list(self._figures)
        t.above, t.below, t.unequal = c[0:3]
        t.within_hundredth, t.within_thousandth, t.within_ten_thousandth = c[3:6]
        t.small, t.small_above_atol, t.small_above_benchmark_atol, t.normal_above_rtol, t.ulp_above = c[6:11]
        t.beyond_rounding = c[16]
        t.max_abs, t.max_rel, t.max_rel_normal, t.bench_largest = f[0:4]
        t.max_ulp, t.sum_ulp = f[4] * scale, f[8] * scale
        t.squares_normal, t.squares_small, t.sum_rel_normal = f[5:8]
        s = t.sides
        if s is not None:
            s.device_max, s.device_min, s.bench_max, s.bench_min = f[9:13]
            s.device_sum, s.bench_sum, s.device_squares, s.bench_squares, s.products = f[14:19]
            s.relative_below_thousandth, s.relative_below_five_thousandths = c[13:15]
            s.max_relative = math.nan if c[15] else f[13]
        return t


def _place(place: int, start: int, origin: torch.Tensor | None) -> int:
    return start + (place if origin is None else int(origin[place]))

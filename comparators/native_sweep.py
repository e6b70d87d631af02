"""The sweep by the compiled loops: tensors as they are where their dtype fits, converted chunk by chunk otherwise."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .dtypes import Format
from .native import COUNTS, FIGURES
from .totals import Sides, Thresholds, Totals, set_aside

_CHUNK = 32768
Floats = npt.NDArray[Any]
_START = np.zeros(FIGURES)
_START[[9, 11]] = -np.inf
_START[[10, 12]] = np.inf


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
        self._round_to, self._with_sides = round_to, sides
        single = work is torch.float32
        self._loop = library.sweep_float if single else library.sweep_double
        self._special = library.sweep_float_special if single else library.sweep_double_special
        self._special.restype = ctypes.c_int64
        scale = 2.0**-form.mantissa
        self._parameters = np.array(
            [
                eps,
                thresholds.small_value,
                thresholds.small_value_atol,
                thresholds.benchmark_atol,
                thresholds.rtol,
                thresholds.ulp_threshold * scale,
                2.0**form.emin,
            ]
        )
        self._counts = np.zeros(COUNTS, np.int64)
        self._figures = _START.copy()
        self._buffers: list[torch.Tensor] = []
        self._totals = Totals(sides=Sides() if sides else None)

    def run(self, n: torch.Tensor, b: torch.Tensor, chunk: int | None) -> Totals:
        """Add up all elements and return the totals."""
        size = n.numel()
        direct = n.dtype is self._work and b.dtype is self._work and self._round_to is None
        step = max(1, chunk or (size if direct else _CHUNK))
        self._buffers = [torch.empty(min(step, size), dtype=self._work) for _ in range(0 if direct else 3)]
        for start in range(0, size, step):
            stop = min(start + step, size)
            bench = rounded = self._load(b[start:stop], 1)
            if self._round_to is not None:
                rounded = self._load(b[start:stop].to(self._round_to), 2)
            self._add(self._load(n[start:stop], 0), bench, rounded, start)
        return self._finish()

    def _load(self, part: torch.Tensor, slot: int) -> Floats:
        if part.dtype is not self._work:
            part = self._buffers[slot][: part.numel()].copy_(part)
        array: Floats = part.numpy()
        return array

    def _add(self, n: Floats, b: Floats, rounded: Floats, start: int) -> None:
        origin: Floats | None = None
        special = self._special(_pointer(n), _pointer(b), ctypes.c_int64(n.size), ctypes.c_double(self._form.largest))
        if special:
            with np.errstate(over="ignore"):
                fine = np.isfinite(n) & (np.abs(b) < self._form.largest)
            set_aside(self._totals, n[~fine], b[~fine], self._form, self._eps, self._rtol)
            origin = np.flatnonzero(fine)
            n, b, rounded = n[fine], b[fine], rounded[fine]
            if n.size == 0:
                return
        before = self._figures[0], self._figures[1]
        self._loop(
            _pointer(n),
            _pointer(b),
            _pointer(rounded),
            ctypes.c_int64(n.size),
            _pointer(self._parameters),
            ctypes.c_int(self._with_sides),
            _pointer(self._counts),
            _pointer(self._figures),
        )
        self._totals.size += n.size
        if self._figures[0] > before[0]:
            self._totals.max_abs_at = _place(int(self._counts[11]), start, origin)
        if self._figures[1] > before[1]:
            self._totals.max_rel_at = _place(int(self._counts[12]), start, origin)

    def _finish(self) -> Totals:
        t, scale = self._totals, 2.0**self._form.mantissa
        c: list[int] = self._counts.tolist()
        f: list[float] = self._figures.tolist()
        t.above, t.below, t.unequal = c[0:3]
        t.within_hundredth, t.within_thousandth, t.within_ten_thousandth = c[3:6]
        t.small, t.small_above_atol, t.small_above_benchmark_atol, t.normal_above_rtol, t.ulp_above = c[6:11]
        t.max_abs, t.max_rel, t.max_rel_normal, t.bench_largest = f[0:4]
        t.max_ulp, t.sum_ulp = f[4] * scale, f[8] * scale
        t.squares_normal, t.squares_small, t.sum_rel_normal = f[5:8]
        s = t.sides
        if s is not None:
            s.device_max, s.device_min, s.bench_max, s.bench_min = f[9:13]
            s.device_sum, s.bench_sum, s.device_squares, s.bench_squares, s.products = f[14:19]
            s.relative_below_thousandth, s.relative_below_five_thousandths = c[13:15]
            s.max_relative = float("nan") if c[15] else f[13]
        return t


def _pointer(array: Floats) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _place(place: int, start: int, origin: Floats | None) -> int:
    return start + (place if origin is None else int(origin[place]))

"""Rounding noise: what a comparison must not take for a fault.

The reference device's own run shows how much of an output is noise. Where it sums in another order than the golden run,
elements near zero carry errors that have nothing to do with their size: a ratio of two such errors is chance. So before
an output fails on values, elements are left out whose error is no larger than

    T = 8 · A(element) + half a ULP of the element

where A is the largest error of the reference, beyond half a ULP of its own rounding, among the elements up to eight
times as large as this one (at least the 16 smallest). This is done only where the device's errors, root mean square over
the whole output, are no more than five times the reference's. A golden run in float32 has noise of its own, which the
reference may share: T is at least 16 · 2^-24 of the largest value there. `conv1d` and `conv2d` have no golden: there T is
8 · 2^-24 of the largest value and one ULP, for both sides are rounded. Calls that round to half precision inside
themselves (limit `internal_ulp`) may err by that many ULPs of the largest value.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .dtypes import Format

_CHUNK = 1 << 18
_FACTOR = 8.0
_OCTAVES = 3
_FEWEST = 16
NOISIER = 5.0
TWO_WAY = 8 * 2.0**-24
SINGLE_GOLDEN = 16 * 2.0**-24
# Bins of binary exponents that float32 and float64 goldens have; what lies outside falls into the first or last.
_LOWEST, _BINS = -160, 320


def reference_noise(reference: torch.Tensor, golden: torch.Tensor, form: Format) -> torch.Tensor:
    """A by binary exponent of the golden value: the allowance in each of the bins that `noise_bins` assigns."""
    worst = torch.zeros(_BINS, dtype=torch.float64, device=golden.device)
    counts = torch.zeros(_BINS, dtype=torch.int64, device=golden.device)
    for own, best in _chunks(reference, golden):
        beyond = (own - best).abs() - ulp(best, form) / 2
        usable = torch.isfinite(beyond)
        bins = noise_bins(best[usable])
        worst.scatter_reduce_(0, bins, beyond[usable].clamp_min(0), "amax")
        counts += torch.bincount(bins, minlength=_BINS)
    upto = torch.cummax(worst, 0).values
    populated = torch.nonzero(counts.cumsum(0) >= _FEWEST)
    first = int(populated[0]) if populated.numel() else _BINS - 1
    places = torch.arange(_BINS, device=golden.device).add(_OCTAVES).clamp(first, _BINS - 1)
    return _FACTOR * upto[places]


def noise_bins(values: torch.Tensor) -> torch.Tensor:
    """The bin of each float64 value by its binary exponent; zero is in the first."""
    exponents = torch.frexp(values.abs()).exponent.long()
    exponents = torch.where(values == 0, torch.full_like(exponents, _LOWEST), exponents)
    return (exponents - _LOWEST).clamp(0, _BINS - 1)


def relieved(
    device: torch.Tensor, bench: torch.Tensor, form: Format, noise: torch.Tensor | float, ulps: float
) -> tuple[torch.Tensor, int]:
    """The device's output with elements within noise and `ulps` of the bench set to the bench, and their number."""
    wide = torch.float64 if torch.float64 in (device.dtype, bench.dtype) else torch.float32
    out = torch.empty(device.numel(), dtype=wide, device=device.device)
    count, start = 0, 0
    for own, best in _chunks(device, bench):
        allowed = noise[noise_bins(best)] if isinstance(noise, torch.Tensor) else noise
        explained = ((own - best).abs() <= allowed + ulps * ulp(best, form)) & (own != best)
        count += int(explained.sum())
        stop = start + own.numel()
        out[start:stop] = torch.where(explained, best, own)
        start = stop
    return out.reshape(device.shape), count


def ulp(values: torch.Tensor, form: Format) -> torch.Tensor:
    """One unit in the last place of each value, in float64."""
    exponent = (torch.frexp(values.abs()).exponent - 1).clamp_min(form.emin)
    exponent = torch.where(values == 0, torch.full_like(exponent, form.emin), exponent)
    return torch.exp2((exponent - form.mantissa).to(torch.float64))


def _chunks(a: torch.Tensor, b: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    for start in range(0, flat_a.numel(), _CHUNK):
        yield flat_a[start : start + _CHUNK].double(), flat_b[start : start + _CHUNK].double()

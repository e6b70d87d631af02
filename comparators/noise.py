"""Rounding noise: what a three-way comparison must not take for a fault.

The reference device's own run shows how much of an output is noise. Where it sums in another order than the golden run,
elements near zero carry errors that have nothing to do with their size: a ratio of two such errors is chance. So before
an output fails on values, elements are left out whose error is no larger than

    T = max(8 · A, 4 units of 2^-24 of the largest golden value) + half a ULP of the element

where A is the largest error of the reference beyond half a ULP of its own rounding. `conv1d` and `conv2d` have no
golden: there T is 256 · 2^-23 of the largest value, and the rounding of both sides counts (one ULP).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .dtypes import Format

_CHUNK = 1 << 18
_FACTOR = 8.0


def threshold(
    device: torch.Tensor, reference: torch.Tensor | None, golden: torch.Tensor, form: Format, largest: float
) -> float:
    """The T of the module's text, without the element's own ULP; `largest` is the largest finite bench value."""
    if reference is None:
        return 256 * 2.0**-23 * largest
    excess = 0.0
    for own, best in _chunks(reference, golden):
        beyond = (own - best).abs() - ulp(best, form) / 2
        beyond = beyond[torch.isfinite(beyond)]
        if beyond.numel():
            excess = max(excess, float(beyond.max()))
    return max(_FACTOR * excess, 4 * 2.0**-24 * largest)


def relieved(
    device: torch.Tensor, bench: torch.Tensor, form: Format, limit: float, ulps: float
) -> tuple[torch.Tensor, int]:
    """The device's output with elements within `limit` and `ulps` of the bench set to the bench, and their number."""
    wide = torch.float64 if torch.float64 in (device.dtype, bench.dtype) else torch.float32
    out = torch.empty(device.numel(), dtype=wide, device=device.device)
    count, start = 0, 0
    for own, best in _chunks(device, bench):
        explained = ((own - best).abs() <= limit + ulps * ulp(best, form)) & (own != best)
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

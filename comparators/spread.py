"""How the error of a failing output is spread: by decade of the error, and by decade of the reference's magnitude.

A few dozen numbers, for pictures: they show whether everything is a little off, a few elements are far off, or only the small
(or the large) values are. Very many elements are sampled at random, always the same way.
"""

from __future__ import annotations

from typing import Any

import torch

_SAMPLE = 16_384
# The decades of double precision, denormal numbers included.
_LOWEST = -324


def error_spread(device: Any, bench: Any) -> dict[str, Any] | None:
    """The spread of `|device - bench|`; None where the two are not real floating tensors of one shape.

    `errors` are [decade, elements], `by_magnitude` are [decade of |bench|, elements, worst error, mean error]; `equal` elements
    have no error, `special` ones are nan or infinite on either side; `sampled` is set where not all elements were looked at.
    """
    pair = (device, bench)
    if not all(isinstance(item, torch.Tensor) and item.is_floating_point() for item in pair):
        return None
    if device.shape != bench.shape or device.numel() == 0 or any(item.layout is not torch.strided for item in pair):
        return None
    count = device.numel()
    ours, theirs = (item.detach().reshape(-1) for item in pair)
    if count > _SAMPLE:
        picked = torch.randint(count, (_SAMPLE,), generator=torch.Generator().manual_seed(0))
        ours, theirs = ours[picked.to(ours.device)], theirs[picked.to(theirs.device)]
    ours, theirs = (item.to("cpu", torch.float64) for item in (ours, theirs))
    finite = torch.isfinite(ours) & torch.isfinite(theirs)
    error, size = (ours - theirs).abs()[finite], theirs.abs()[finite]
    off = error > 0
    found: dict[str, Any] = {
        "errors": _by_decade(error[off]),
        "equal": int((~off).sum()),
        "special": len(ours) - len(error),
        "by_magnitude": _by_magnitude(size[size > 0], error[size > 0]),
    }
    if count > _SAMPLE:
        found["sampled"] = _SAMPLE
    return found


def _decades(values: torch.Tensor) -> torch.Tensor:
    return values.log10().floor().to(torch.int64) - _LOWEST


def _by_decade(errors: torch.Tensor) -> list[list[int]]:
    counts = torch.bincount(_decades(errors)).tolist()
    return [[decade + _LOWEST, count] for decade, count in enumerate(counts) if count]


def _by_magnitude(sizes: torch.Tensor, errors: torch.Tensor) -> list[list[float]]:
    decades = _decades(sizes)
    counts = torch.bincount(decades)
    sums = torch.bincount(decades, weights=errors)
    worst = torch.zeros(len(counts), dtype=torch.float64).scatter_reduce(0, decades, errors, "amax")
    table = zip(counts.tolist(), worst.tolist(), sums.tolist(), strict=True)
    return [
        [decade + _LOWEST, count, _short(most), _short(total / count)]
        for decade, (count, most, total) in enumerate(table)
        if count
    ]


def _short(value: float) -> float:
    return float(f"{value:.4g}")

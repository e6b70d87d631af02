"""Special values: where the device has nan or inf and the reference has not, or the other way round."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_CHUNK = 1 << 20


@dataclass(frozen=True)
class SpecialFault:
    """Elements whose special values disagree.

    Attributes:
        count: how many.
        place: the first one, in the flattened output.
        device, reference: its values.
    """

    count: int
    place: int
    device: float
    reference: float

    def __str__(self) -> str:
        return (
            f"special values: {self.count} elements, the first with {self.device} on the device "
            f"against {self.reference} on the reference"
        )


def special_fault(device: torch.Tensor, reference: torch.Tensor) -> SpecialFault | None:
    """The disagreement of two equally shaped float outputs; nan agrees with nan, inf with inf of the same sign."""
    n, r = device.reshape(-1), reference.reshape(-1)
    count, first = 0, -1
    for start in range(0, n.numel(), _CHUNK):
        a, b = n[start : start + _CHUNK].float(), r[start : start + _CHUNK].float()
        if n.dtype is torch.float64 or r.dtype is torch.float64:
            a, b = n[start : start + _CHUNK].double(), r[start : start + _CHUNK].double()
        special = ~(torch.isfinite(a) & torch.isfinite(b))
        wrong = special & (a != b) & ~(a.isnan() & b.isnan())
        found = int(wrong.sum())
        if found and first < 0:
            first = start + int(wrong.to(torch.uint8).argmax())
        count += found
    if not count:
        return None
    return SpecialFault(count, first, float(n[first]), float(r[first]))

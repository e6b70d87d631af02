"""What a dtype means for judging: its kind, the row of limits, its number format."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Format:
    """A floating-point format.

    Attributes:
        row: the name of its limits.
        mantissa: explicit mantissa bits; one ULP of a number in [2^e, 2^(e+1)) is 2^(e - mantissa).
        emin: exponent of the smallest normal number.
        eps: what is added to |bench| in relative errors when the bench has this dtype.
        largest: numbers from here on round to infinity.
    """

    row: str
    mantissa: int
    emin: int
    eps: float
    largest: float


_SINGLE = Format("float32", 23, -126, 2.0**-23, 2.0**128 - 2.0**103)
_E4M3 = Format("float8_e4m3", 3, -6, 2.0**-3, float("inf"))
_E5M2 = Format("float8_e5m2", 2, -14, 2.0**-2, 61440.0)
FORMATS: dict[torch.dtype, Format] = {
    torch.float16: Format("float16", 10, -14, 2.0**-10, 65520.0),
    # A bfloat16 output is widened to float32 before any arithmetic: nothing below float32's range becomes infinite.
    torch.bfloat16: Format("bfloat16", 7, -126, 2.0**-8, 2.0**128 - 2.0**103),
    torch.float32: _SINGLE,
    torch.float64: Format("float32", 23, -126, 2.0**-52, float("inf")),
}
for _name, _format in (
    ("float8_e4m3fn", _E4M3),
    ("float8_e4m3fnuz", Format("float8_e4m3", 3, -7, 2.0**-3, float("inf"))),
    ("float8_e5m2", _E5M2),
    ("float8_e5m2fnuz", Format("float8_e5m2", 2, -15, 2.0**-2, float("inf"))),
):
    if hasattr(torch, _name):
        FORMATS[getattr(torch, _name)] = _format

FLOAT8 = frozenset(dtype for dtype in FORMATS if str(dtype).startswith("torch.float8"))


def kind(dtype: torch.dtype) -> str:
    """`float`, `complex`, `bool` or `int`: outputs of different kinds are never compared."""
    if dtype.is_complex:
        return "complex"
    if dtype.is_floating_point:
        return "float"
    return "bool" if dtype is torch.bool else "int"


def real_format(dtype: torch.dtype) -> Format | None:
    """The format of a float dtype, of a complex one's parts; None for the rest."""
    return FORMATS.get(dtype.to_real() if dtype.is_complex else dtype)

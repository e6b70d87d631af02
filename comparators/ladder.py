"""The ladder: the two-way status of one float output, step by step; the first step that decides ends it."""

from __future__ import annotations

import torch

from .metrics import Metrics, number
from .profiles import Limits

_HALF = frozenset({torch.float16, torch.bfloat16})
_SINGLE = frozenset({torch.float32, torch.float64, torch.complex64, torch.complex128})


def ladder(metrics: Metrics, dtype: torch.dtype, limits: Limits) -> tuple[str, str, tuple[str, ...]]:
    """Status, the reason, and the metrics that were looked at, in order."""
    looked = ["cosine"]
    cosine = metrics.get("cosine")
    met = bool(metrics.get("cosine_computable", True)) and (
        cosine is None or number(metrics, "cosine") > limits["cosine"]
    )
    if not met:
        shown = "not computable" if cosine is None else f"{number(metrics, 'cosine'):.6g}"
        return "error", f"cosine similarity {shown}, must exceed {limits['cosine']:g}", tuple(looked)
    looked.append("max_abs_err")
    if number(metrics, "max_abs_err") < limits["max_abs_err"]:
        return "pass", f"max abs error below {limits['max_abs_err']:g}", tuple(looked)
    steps = _HALF_STEPS if dtype in _HALF else _SINGLE_STEPS if dtype in _SINGLE else _OTHER_STEPS
    for name, tolerance, status in steps:
        looked.append(name)
        share = number(metrics, name)
        if not share > 1 - tolerance:
            # Single precision shows its second ratio also when the first one has failed.
            if dtype in _SINGLE and name == "thousandth":
                looked.append("ten_thousandth")
            return status, f"only {share:.6g} of the elements within {tolerance:g} of the bench", tuple(looked)
    return "pass", "enough elements are close to the bench", tuple(looked)


_HALF_STEPS = (("hundredth", 1e-2, "error"), ("thousandth", 1e-3, "warning"))
_SINGLE_STEPS = (("thousandth", 1e-3, "error"), ("ten_thousandth", 1e-4, "warning"))
# float8 resolves no hundredth: cosine and the standard of the API decide.
_OTHER_STEPS: tuple[tuple[str, float, str], ...] = ()

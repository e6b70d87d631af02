"""Outputs that must be equal: int and bool tensors, Python values, None."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from .names import BINARY, base_name
from .result import OutputJudgement
from .standards import Check
from .ties import ties_explain

_BYTES = frozenset({torch.int8, torch.uint8})


def judge_exact(
    blank: OutputJudgement,
    device: Any,
    reference: Any,
    api: str = "",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> OutputJudgement:
    """Judge a pair that has passed the checks of structure and dtype."""
    blank = replace(blank, standard=BINARY)
    if not isinstance(device, torch.Tensor):
        return _scalar(blank, device, reference)
    if torch.equal(device, reference):
        return _decided(blank, "pass", 0.0, "")
    unequal = device != reference
    rate = int(unequal.sum()) / device.numel()
    if device.dtype in _BYTES and "quant" in base_name(api):
        steps = (device.to(torch.int16) - reference.to(torch.int16)).abs()
        if int(steps.max()) <= 1:
            return _decided(blank, "pass", rate, f"{int(unequal.sum())} quantised elements are off by one, as may be")
    ties = ties_explain(api, blank.index, device, reference, args, kwargs or {})
    if ties == "":
        return _decided(blank, "pass", rate, f"{int(unequal.sum())} indices differ and point to equal values (ties)")
    place = int(unequal.reshape(-1).to(torch.uint8).argmax())
    message = f"{int(unequal.sum())} of {device.numel()} elements differ"
    judged = _decided(blank, "error", rate, f"{message}: {ties}" if ties else message)
    index: list[int] = [int(i) for i in torch.unravel_index(torch.tensor(place), device.shape)] if device.dim() else []
    values = device.reshape(-1)[place].item(), reference.reshape(-1)[place].item()
    worst = {"index": index, "device": values[0], "reference": values[1]}
    return replace(judged, worst=worst, would_pass={"error_rate": rate})


def _decided(blank: OutputJudgement, verdict: str, rate: float, message: str) -> OutputJudgement:
    passed = verdict == "pass"
    return replace(
        blank,
        verdict=verdict,
        status=verdict,
        standard_status=verdict,
        metrics={"error_rate": rate},
        checks=(Check("error_rate", rate, 0.0, passed, 0.0 if passed else math.inf),),
        ratio=0.0 if passed else math.inf,
        message=message,
    )


def _scalar(blank: OutputJudgement, device: Any, reference: Any) -> OutputJudgement:
    if device is None and reference is None:
        return replace(blank, message="None on both sides")
    if isinstance(device, torch.device) and isinstance(reference, torch.device):
        return replace(blank, message="devices differ by nature")
    both_nan = _is_nan(device) and _is_nan(reference)
    if type(device) is not type(reference) and not _both_numbers(device, reference):
        return _decided(blank, "error", 1.0, f"type: {type(device).__name__} against {type(reference).__name__}")
    if both_nan or device == reference:
        return _decided(blank, "pass", 0.0, "")
    judged = _decided(blank, "error", 1.0, f"{device!r} against {reference!r}")
    return replace(judged, worst={"index": [], "device": _shown(device), "reference": _shown(reference)})


def _both_numbers(device: Any, reference: Any) -> bool:
    """NumPy's numbers against Python's of the same kind."""
    return any(
        isinstance(device, kinds) and isinstance(reference, kinds) and not isinstance(device, bool)
        for kinds in (int, float)
    )


def _shown(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else repr(value)[:200]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)

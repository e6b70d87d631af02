"""One output of a call: structure, dtype, special values, values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from .dtypes import kind, real_format
from .exact import judge_exact
from .float_outputs import judge_float
from .names import BINARY
from .peer_arithmetic import judge_as_peer
from .profiles import Profile
from .random_ops import dropout_fault, dropout_rate
from .result import OutputJudgement, failed
from .structure import unequal_structure


@dataclass(frozen=True)
class Call:
    """What all outputs of a call share."""

    api: str
    standard: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    profile: Profile
    base: str


def judge_output(call: Call, index: int, path: str, device: Any, reference: Any, golden: Any) -> OutputJudgement:
    """Judge one output against the reference's and, where there is one, the golden one."""
    fault = unequal_structure(device, reference)
    if fault:
        return failed(_blank(call, index, path, device, reference), fault)
    if not isinstance(device, torch.Tensor):
        return judge_exact(_blank(call, index, path, device, reference), device, reference)
    device, reference = _plain(device), _plain(reference).to(device.device)
    golden = _plain(golden).to(device.device) if isinstance(golden, torch.Tensor) else None
    if golden is not None and golden.shape != device.shape:
        golden = None
    blank = _blank(call, index, path, device, reference)
    if kind(device.dtype) != kind(reference.dtype):
        return failed(blank, f"dtype: {blank.dtype} against {blank.bench_dtype}")
    if call.profile.peer_arithmetic:
        return judge_as_peer(call.api, call.profile, blank, device, reference, golden)
    if device.dtype != reference.dtype:
        return failed(blank, f"dtype: {blank.dtype} against {blank.bench_dtype}")
    if device.numel() == 0:
        return replace(blank, message="nothing to compare: no elements")
    rate = dropout_rate(call.api, call.args, call.kwargs)
    if rate is not None:
        return _judge_dropout(call, blank, device, rate)
    form = real_format(device.dtype)
    if form is None:
        return judge_exact(blank, device, reference, call.api, call.args, call.kwargs)
    limits = call.profile.limits(call.api, form.row)
    return judge_float(call.standard, limits, blank, form, device, reference, golden)


def _judge_dropout(call: Call, blank: OutputJudgement, device: torch.Tensor, rate: float) -> OutputJudgement:
    source = call.args[0] if call.args else call.kwargs.get("input")
    if not isinstance(source, torch.Tensor) or not device.dtype.is_floating_point:
        return replace(blank, message="random: the mask of a dropout")
    fault = dropout_fault(call.api, device, source.to(device.device), rate)
    if fault is not None:
        return failed(blank, f"dropout: {fault}")
    words = f"dropout with p = {rate:g}: survivors are scaled rightly, zeros within chance"
    return replace(blank, verdict="pass", status="pass", standard_status="pass", message=words)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Without gradient, conjugate or negative bit, dense."""
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _blank(call: Call, index: int, path: str, device: Any, reference: Any) -> OutputJudgement:
    shape = tuple(device.shape) if isinstance(device, torch.Tensor) else ()
    exact = isinstance(device, torch.Tensor) and real_format(device.dtype) is None
    standard = BINARY if exact else call.standard
    return OutputJudgement(
        index, path, "skip", standard, dtype=_dtype(device), bench_dtype=_dtype(reference), shape=shape
    )


def _dtype(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.")
    return "" if value is None else type(value).__name__

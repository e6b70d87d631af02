"""In which precision the golden run computes, and what reaches it under autocast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from spool_reader.allowlist import resolve
from spool_reader.replay import Replay

half, bfloat, single, double = torch.float16, torch.bfloat16, torch.float32, torch.float64


def _ones(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.ones(shape or (2, 2), dtype=dtype)


RAISED = {
    "float16": ("Torch.mm.0", (_ones(half), _ones(half)), {}, single),
    "bfloat16": ("Torch.mm.0", (_ones(bfloat), _ones(bfloat)), {}, single),
    "float32": ("Torch.mm.0", (_ones(single), _ones(single)), {}, double),
    "float64": ("Torch.mm.0", (_ones(double), _ones(double)), {}, double),
    "complex64": ("Torch.mm.0", (_ones(torch.complex64), _ones(torch.complex64)), {}, torch.complex128),
    "two float types": ("Torch.mul.0", (_ones(half), _ones(single)), {}, single),
    "with float64": ("Torch.mul.0", (_ones(half), _ones(double)), {}, double),
    "conv2d keeps float32": ("Functional.conv2d.0", (_ones(single, 1, 1, 2, 2), _ones(single, 1, 1, 1, 1)), {}, single),
    "conv2d in half": ("Functional.conv2d.0", (_ones(half, 1, 1, 2, 2), _ones(half, 1, 1, 1, 1)), {}, single),
    "conv3d does not": (
        "Functional.conv3d.0",
        (_ones(single, 1, 1, 2, 2, 2), _ones(single, 1, 1, 1, 1, 1)),
        {},
        double,
    ),
    "type_as is not raised": ("Tensor.type_as.0", (_ones(single), _ones(half)), {}, half),
    "keyword arguments": ("Functional.linear.0", (_ones(bfloat),), {"weight": _ones(bfloat)}, single),
    "nested keyword arguments": ("Torch.cat.0", (), {"tensors": [_ones(half), _ones(half)]}, single),
    "dtype argument": ("Torch.sum.0", (_ones(half),), {"dtype": single}, double),
    "integers divided": ("Torch.div.0", (_ones(torch.int64), 3), {}, double),
    "integers stay integers": ("Torch.add.0", (_ones(torch.int32), 3), {}, torch.int32),
}


@pytest.mark.parametrize("name", sorted(RAISED))
def test_the_golden_run_is_raised(name: str, bundle: Callable[..., Any]) -> None:
    api, args, kwargs, dtype = RAISED[name]
    target = resolve(api)
    made = bundle(api, args, kwargs, target.call(*args, **kwargs))
    assert Replay(made, target).golden().result.dtype is dtype


def test_autocast_inputs_are_rounded_before_they_are_raised(bundle: Callable[..., Any]) -> None:
    """The golden is the exact answer for what the device was given: 1 + 2**-9 is 1 in bfloat16."""
    x = torch.full((1, 1), 1 + 2**-9)
    context = {"autocast": {"npu": "bfloat16"}}
    device = torch.ones(1, 1, dtype=bfloat)
    rounded = Replay(bundle("Torch.mm.0", (x, x), {}, device, context=context), resolve("Torch.mm.0")).golden()
    assert rounded.result.dtype is single
    assert rounded.result.item() == 1.0
    kept = Replay(bundle("Torch.mm.0", (x, x), {}, x @ x, context=context), resolve("Torch.mm.0")).golden()
    assert kept.result.item() == pytest.approx((1 + 2**-9) ** 2, abs=1e-12)


AUTOCAST = {
    "lower precision list": ("Functional.linear.0", (_ones(single), _ones(single)), bfloat),
    "float32 list of another device": ("Functional.softmax.0", (_ones(bfloat), 0), single),
    "not on any list": ("Torch.neg.0", (_ones(single),), single),
}


@pytest.mark.parametrize("name", sorted(AUTOCAST))
def test_autocast_is_replayed_as_on_the_device(name: str, row: Callable[..., dict[str, Any]]) -> None:
    api, args, dtype = AUTOCAST[name]
    raised = [arg.float() if isinstance(arg, torch.Tensor) else arg for arg in args]
    result = resolve(api).call(*raised).to(dtype)
    found = row(api, args, {}, result, context={"autocast": {"npu": "bfloat16"}})
    assert found["verdict"] == "pass", found
    [output] = found["outputs"]
    assert output["dtype"].endswith(str(dtype).removeprefix("torch."))


def test_backward_calls_are_not_autocast_again(row: Callable[..., dict[str, Any]]) -> None:
    found = row(
        "Aten.mm.0", (_ones(single), _ones(single)), {}, torch.full((2, 2), 2.0), phase="backward",
        context={"autocast": {"npu": "bfloat16", "cpu": "bfloat16"}},
    )  # fmt: skip
    assert found["verdict"] == "pass", found


x, grad = torch.linspace(-3, 3, 32).reshape(4, 8), torch.linspace(1, 2, 32).reshape(4, 8)
soft, log_soft = x.softmax(-1), x.log_softmax(-1)
HALF_TO_FLOAT = {
    "softmax of half": ("Aten._softmax.0", (x.half(), -1, True), x.half().float().softmax(-1)),
    "log_softmax of half": ("Aten._log_softmax.0", (x.half(), -1, True), x.half().float().log_softmax(-1)),
    "softmax's gradient as half": (
        "Aten._softmax_backward_data.0",
        (grad, soft, -1, half),
        torch.ops.aten._softmax_backward_data(grad, soft, -1, single).half(),
    ),
    "log_softmax's gradient as bfloat16": (
        "Aten._log_softmax_backward_data.0",
        (grad, log_soft, -1, bfloat),
        torch.ops.aten._log_softmax_backward_data(grad, log_soft, -1, single).bfloat16(),
    ),
}


@pytest.mark.parametrize("name", sorted(HALF_TO_FLOAT))
def test_a_change_of_dtype_that_only_accelerators_fuse(name: str, row: Callable[..., dict[str, Any]]) -> None:
    api, args, result = HALF_TO_FLOAT[name]
    found = row(api, args, {}, result, phase="backward")
    assert found["verdict"] == "pass", found
    assert found["mode"] == "three-way"
    assert row(api, args, {}, result * 1.1, phase="backward")["verdict"] == "error"

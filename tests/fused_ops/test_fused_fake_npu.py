"""The simulated operator namespace: official schemas, agreement with the references, faults that are seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fake_npu as simulated
import pytest
import torch
from fake_npu import FakeNpu, fake_npu
from fused_make import Make
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import fused_ops
from fused_ops.schema import parse_schema

torch.set_num_threads(1)
COMPRESSED = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
MAP = torch.tensor([[True, False, False], [False, True, False]])


@pytest.fixture
def npu() -> Iterator[FakeNpu]:
    with fake_npu() as device:
        yield device


@pytest.mark.parametrize("schema", simulated.OPERATORS, ids=lambda text: text.partition("(")[0])
def test_schemas_are_the_official_ones(schema: str) -> None:
    ours = parse_schema(schema)
    official = parse_schema(fused_ops.reference(ours.name).schema)
    assert [(a.name, a.type, a.default, a.keyword_only) for a in ours.arguments] == [
        (a.name, a.type, a.default, a.keyword_only) for a in official.arguments
    ]
    assert len(ours.returns) == len(official.returns)


def _call(m: Make, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of one call as user code would write them."""
    calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "fast_gelu": ((m.normal(3, 4),), {}),
        "npu_fast_gelu": ((m.normal(3, 4),), {}),
        "npu_fast_gelu_backward": ((m.normal(3, 4), m.normal(3, 4)), {}),
        "npu_mish": ((m.normal(3, 4),), {}),
        "npu_mish_backward": ((m.normal(3, 4), m.normal(3, 4)), {}),
        "npu_swiglu": ((m.normal(3, 4),), {"dim": 1}),
        "npu_swiglu_backward": ((m.normal(3, 2), m.normal(3, 4)), {}),
        "npu_rms_norm": ((m.normal(2, 3, 4), m.normal(3, 4)), {"epsilon": 1e-5}),
        "npu_layer_norm_eval": ((m.normal(3, 4), [4], m.normal(4)), {"eps": 1e-3}),
        "npu_group_norm_silu": ((m.normal(2, 4, 3), m.normal(4), None, 2), {}),
        "npu_linear": ((m.normal(3, 4), m.normal(5, 4), m.normal(5)), {}),
        "npu_linear_backward": ((m.normal(3, 5), m.normal(3, 4), m.normal(5, 4)), {}),
        "npu_rotary_mul": ((m.normal(2, 3, 4, 8), m.normal(1, 3, 1, 8), m.normal(1, 3, 1, 8), "interleave"), {}),
        "npu_scaled_masked_softmax": ((m.normal(1, 2, 2, 3), MAP), {"scale": 0.5}),
        "npu_confusion_transpose": ((m.normal(2, 3, 4), [1, 2, 0], [4, 6], True), {}),
        "npu_confusion_transpose_backward": ((m.normal(4, 6), [2, 0, 1], [3, 4, 2], False), {}),
        "npu_sort_v2": ((m.normal(3, 4),), {"descending": True}),
        "npu_moe_gating_top_k_softmax": ((m.normal(2, 3, 5),), {"k": 2}),
        "npu_fusion_attention": (
            (m.normal(2, 3, 16), m.normal(2, 5, 8), m.normal(2, 5, 8), 4, "BSH"),
            {"scale": 0.5, "atten_mask": COMPRESSED, "sparse_mode": 3},
        ),
        "npu_fusion_attention_grad": (
            (m.normal(2, 4, 3, 4), m.normal(2, 2, 5, 4), m.normal(2, 2, 5, 4), m.normal(2, 4, 3, 4), 4, "BNSD"),
            {"scale_value": 0.5},
        ),
    }
    if name == "npu_rms_norm_backward":
        x, gamma = m.normal(2, 3, 4), m.normal(4)
        return (m.normal(2, 3, 4), x, gamma, fused_ops.reference("npu_rms_norm")(x, gamma, 1e-4)[1]), {}
    if name == "npu_scaled_masked_softmax_backward":
        y = torch.softmax(m.normal(1, 2, 2, 3), -1).masked_fill(MAP, 0)
        return (m.normal(1, 2, 2, 3), y, MAP, 0.5, False), {}
    if name == "npu_rotary_mul_backward":
        angle = m.normal(1, 3, 1, 8).requires_grad_()
        return (m.normal(2, 3, 4, 8), m.normal(2, 3, 4, 8), angle, m.normal(1, 3, 1, 8)), {}
    return calls[name]


NAMES = [schema.partition("(")[0] for schema in simulated.OPERATORS]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_simulated_kernels_agree_with_the_references(npu: FakeNpu, name: str, dtype: torch.dtype) -> None:
    args, kwargs = _call(Make(dtype), name)
    op = fused_ops.reference(name)
    with torch.no_grad():
        device, expected = getattr(torch.ops.npu, name)(*args, **kwargs), op(*args, **kwargs)
    uncompared = op.uncompared(*args, **kwargs)
    for index, (left, right) in enumerate(zip(_listed(device), _listed(expected), strict=True)):
        if index in uncompared:
            continue
        tolerance = 3e-5 if left.dtype == torch.float32 else 0.02
        torch.testing.assert_close(left, right.detach(), rtol=tolerance, atol=tolerance)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def test_both_name_forms_are_one_operator(npu: FakeNpu) -> None:
    import torch_npu

    assert torch_npu.npu_rms_norm is torch.ops.npu.npu_rms_norm


def test_a_fault_changes_what_the_device_returns_and_ends(npu: FakeNpu) -> None:
    import torch_npu

    x, gamma = torch.randn(3, 4), torch.ones(4)
    right, _ = torch_npu.npu_rms_norm(x, gamma)
    with npu.fault("npu_rms_norm", lambda y, rstd: (y * 1.01, rstd)):
        wrong, _ = torch_npu.npu_rms_norm(x, gamma)
    torch.testing.assert_close(wrong, right * 1.01)
    assert torch.equal(torch_npu.npu_rms_norm(x, gamma)[0], right)


@pytest.mark.parametrize("name", ["npu_apply_adam", "npu_apply_adam_w"])
def test_optimisers_write_their_out_tensors(npu: FakeNpu, name: str) -> None:
    import torch_npu

    m = Make()
    grad, state = m.normal(3), (m.normal(3), m.normal(3), m.positive(3))
    rates = (
        (0.9, 0.999, 0.01, 0.9, 0.999, 1e-8) if name == "npu_apply_adam" else (0.9, 0.99, 0.01, 0.1, 0.9, 0.99, 1e-8)
    )
    rest = (None, None) if name == "npu_apply_adam" else (None, None, None)
    expected = fused_ops.reference(name)(*rates, grad, *rest, out=state)
    given = tuple(item.clone() for item in state)
    result = getattr(torch_npu, name)(*rates, grad, *rest, out=given)
    for new, returned, wanted in zip(given, result, expected, strict=True):
        assert new.data_ptr() == returned.data_ptr()
        torch.testing.assert_close(new, wanted)
    with pytest.raises(RuntimeError, match="out overload"):
        getattr(torch.ops.npu, name)(*rates, grad, *rest)


class _Calls(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


class _Dispatched(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_calls_are_seen_by_modes_forward_and_backward(npu: FakeNpu) -> None:
    import torch_npu

    x, gamma = torch.randn(3, 4, requires_grad=True), torch.ones(4, requires_grad=True)
    state = (torch.zeros(3), torch.zeros(3), torch.zeros(3))
    with _Calls() as calls:
        y, _ = torch_npu.npu_rms_norm(x, gamma)
        torch_npu.npu_apply_adam(0.9, 0.9, 0.1, 0.9, 0.9, 1e-8, torch.ones(3), None, None, out=state)
    assert {"npu_rms_norm", "npu_apply_adam"} <= set(calls.seen)
    with _Dispatched() as dispatched:
        y.sum().backward()
    assert "npu.npu_rms_norm_backward.default" in dispatched.seen
    dx, dgamma = fused_ops.reference("npu_rms_norm_backward")(
        torch.ones(3, 4), x.detach(), gamma.detach(), fused_ops.reference("npu_rms_norm")(x.detach(), gamma.detach())[1]
    )
    torch.testing.assert_close(x.grad, dx, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gamma.grad, dgamma, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", simulated.GRADIENTS)
def test_gradients_flow_through_the_backward_operators(npu: FakeNpu, name: str) -> None:
    args, kwargs = _call(Make(), name)
    leaves = [item.requires_grad_() for item in args if isinstance(item, Tensor) and item.is_floating_point()]
    result = _listed(getattr(torch.ops.npu, name)(*args, **kwargs))[0]
    found = torch.autograd.grad(result, leaves, torch.ones_like(result))
    golden = _listed(fused_ops.reference(name).golden(*args, **kwargs))[0]
    expected = torch.autograd.grad(golden, leaves, torch.ones_like(golden))
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-4)

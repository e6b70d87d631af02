"""Agreement with torch's own operators, where one computes the same function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fused_make import Make
from torch import Tensor

import fused_ops
from fused_ops import attention_forward
from fused_ops.attention_layouts import heads_of
from fused_ops.precision import GOLDEN, OWN

torch.set_num_threads(1)
CAUSAL = torch.ones(2048, 2048, dtype=torch.bool).triu(1)


def op(name: str) -> fused_ops.FusedOp:
    return fused_ops.reference(name)


def golden(name: str, **options: Any) -> Callable[..., Any]:
    """The golden run of an operator with fixed keywords."""
    return lambda *args: op(name).golden(*args, **options)


Function = Callable[..., Any]
NO_MASK = torch.zeros(1, 1, 4, 5, dtype=torch.bool)

# name: (inputs, the reference, torch's own function of the same inputs)
PAIRS: dict[str, tuple[Callable[[Make], tuple[Any, ...]], Function, Function]] = {
    "mish": (lambda m: (m.normal(5, 5) * 30,), golden("npu_mish"), F.mish),
    "silu": (lambda m: (m.normal(5, 5) * 9,), golden("npu_silu"), F.silu),
    "gelu": (lambda m: (m.normal(5, 5) * 9,), golden("npu_gelu"), F.gelu),
    "gelu tanh": (
        lambda m: (m.normal(5, 5),),
        golden("npu_gelu", approximate="tanh"),
        lambda x: F.gelu(x, approximate="tanh"),
    ),
    "gelu_mul": (lambda m: (m.normal(5, 6),), golden("npu_gelu_mul"), lambda x: F.gelu(x[:, :3]) * x[:, 3:]),
    "swiglu": (lambda m: (m.normal(3, 8),), golden("npu_swiglu"), lambda x: F.silu(x[:, :4]) * x[:, 4:]),
    "layer_norm": (
        lambda m: (m.normal(2, 3, 4), [3, 4], m.normal(3, 4), m.normal(3, 4), 1e-4),
        golden("npu_layer_norm_eval"),
        F.layer_norm,
    ),
    "layer_norm plain": (lambda m: (m.normal(2, 3, 4), [4]), golden("npu_layer_norm_eval"), F.layer_norm),
    "rms_norm": (
        lambda m: (m.normal(2, 3, 4), m.normal(3, 4), 1e-3),
        golden("npu_rms_norm"),
        lambda x, gamma, eps: F.rms_norm(x, [3, 4], gamma, eps),
    ),
    "add_rms_norm": (
        lambda m: (m.normal(2, 4), m.normal(2, 4), m.normal(4)),
        golden("npu_add_rms_norm"),
        lambda x, y, gamma: F.rms_norm(x + y, [4], gamma, 1e-6),
    ),
    "gemma_rms_norm": (
        lambda m: (m.normal(2, 4), m.normal(4)),
        golden("npu_gemma_rms_norm"),
        lambda x, gamma: F.rms_norm(x, [4], 1 + gamma, 1e-6),
    ),
    "group_norm_silu": (
        lambda m: (m.normal(2, 4, 3, 2, 2), m.normal(4), m.normal(4)),
        lambda x, w, b: op("npu_group_norm_silu").golden(x, w, b, 2),
        lambda x, w, b: F.silu(F.group_norm(x, 2, w, b)),
    ),
    "group_norm_swish": (
        lambda m: (m.normal(2, 4), m.normal(4), m.normal(4)),
        lambda x, w, b: op("npu_group_norm_swish").golden(x, 2, w, b, 1e-3),
        lambda x, w, b: F.silu(F.group_norm(x, 2, w, b, 1e-3)),
    ),
    "linear": (lambda m: (m.normal(3, 4), m.normal(5, 4), m.normal(5)), golden("npu_linear"), F.linear),
    "cross_entropy": (
        lambda m: (m.normal(4, 5), m.below(5, 4), m.positive(5)),
        golden("npu_cross_entropy_loss", label_smoothing=0.1),
        lambda x, target, w: F.cross_entropy(x, target, w, label_smoothing=0.1).reshape(1),
    ),
    "cross_entropy ignored": (
        lambda m: (m.normal(6, 3), m.below(3, 6)),
        golden("npu_cross_entropy_loss", reduction="none", ignore_index=1),
        lambda x, target: F.cross_entropy(x, target, reduction="none", ignore_index=1),
    ),
    "soft labels": (
        lambda m: (m.normal(4, 5), m.positive(4, 5)),
        golden("npu_softmax_cross_entropy_with_logits"),
        lambda x, y: F.cross_entropy(x, y, reduction="none"),
    ),
    "conv2d": (
        lambda m: (m.normal(2, 4, 6, 6), m.normal(4, 2, 3, 3), None, [2], [1], [1], 2),
        golden("npu_conv2d"),
        F.conv2d,
    ),
    "bmm": (
        lambda m: (m.normal(2, 1, 3, 4), m.normal(5, 4, 2)),
        golden("npu_bmmV2", output_sizes=[]),
        torch.matmul,
    ),
    "sort": (lambda m: (m.normal(3, 4), 0, True), golden("npu_sort_v2"), lambda *args: torch.sort(*args).values),
    "one_hot": (lambda m: (m.below(4, 2, 3),), golden("npu_one_hot", depth=4), lambda x: F.one_hot(x, 4).double()),
    "pad": (lambda m: (m.normal(2, 3),), golden("npu_pad", paddings=[1, 2, 3, 0]), lambda x: F.pad(x, (3, 0, 1, 2))),
    "softmax": (
        lambda m: (m.normal(2, 3, 4, 5),),
        golden("npu_scaled_masked_softmax", mask=NO_MASK, scale=0.5),
        lambda x: torch.softmax(x * 0.5, -1),
    ),
    "softmax of a sum": (
        lambda m: (m.normal(2, 3), m.normal(2, 3)),
        lambda x, y: op("npu_dropout_with_add_softmax").golden(x, y, 0.5, 0.0, -1)[2],
        lambda x, y: torch.softmax(y + 0.5 * x, -1),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_same_as_torch(name: str) -> None:
    make, ours, theirs = PAIRS[name]
    args = make(Make(torch.float64))
    found = ours(*args)
    torch.testing.assert_close(found[0] if isinstance(found, tuple) else found, theirs(*args), rtol=1e-11, atol=1e-11)


def _matmul_shapes() -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [
        ((3, 4), (4, 5)),
        ((4,), (4,)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (6, 4, 5)),
        ((4,), (2, 4, 5)),
        ((2, 3, 4), (4,)),
    ]


@pytest.mark.parametrize("shapes", _matmul_shapes(), ids=str)
@pytest.mark.parametrize("mask", [(True, True), (True, False), (False, True)], ids=str)
def test_matmul_backward(shapes: tuple[tuple[int, ...], tuple[int, ...]], mask: tuple[bool, bool]) -> None:
    m = Make(torch.float64)
    a, b = (m.normal(*shape).requires_grad_() for shape in shapes)
    result = a @ b
    dy = m.normal(*result.shape)
    expected = torch.autograd.grad(result, [a, b], dy)
    found = op("matmul_backward").golden(dy, a.detach(), b.detach(), list(mask))
    for index, wanted in enumerate(mask):
        if wanted:
            torch.testing.assert_close(found[index], expected[index])
        else:
            assert found[index] is None
    assert set(op("matmul_backward").uncompared(dy, a, b, mask)) == {i for i, wanted in enumerate(mask) if not wanted}


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_adam_w_is_torch_s_step(amsgrad: bool, maximize: bool) -> None:
    """Three steps; max_grad_norm is the largest v so far, which torch keeps by itself."""
    m = Make(torch.float64)
    parameter = torch.nn.Parameter(m.normal(6))
    state = [parameter.detach().clone(), torch.zeros(6).double(), torch.zeros(6).double()]
    largest = torch.zeros(6).double()
    options = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1}
    optimizer = torch.optim.AdamW([parameter], amsgrad=amsgrad, maximize=maximize, foreach=False, **options)
    for step in range(3):
        parameter.grad = m.normal(6)
        powers = 0.9**step, 0.99**step
        state = list(
            op("npu_apply_adam_w").golden(
                *powers, 0.01, 0.1, 0.9, 0.99, 1e-6, parameter.grad, largest, amsgrad, maximize, out=tuple(state)
            )
        )
        largest = torch.maximum(largest, state[2])
        optimizer.step()
        torch.testing.assert_close(state[0], parameter.detach(), rtol=1e-9, atol=1e-9)


def test_adam_without_nesterov_is_torch_s_first_step() -> None:
    m = Make(torch.float64)
    parameter = torch.nn.Parameter(m.normal(6))
    start = parameter.detach().clone()
    parameter.grad = m.normal(6)
    optimizer = torch.optim.Adam([parameter], lr=0.01, betas=(0.9, 0.99), eps=0.0, foreach=False)
    zeros = torch.zeros(6).double()
    found = op("npu_apply_adam").golden(
        0.9, 0.99, 0.01, 0.9, 0.99, 0.0, parameter.grad, None, None, out=(start, zeros, zeros)
    )
    optimizer.step()
    torch.testing.assert_close(found[0], parameter.detach())


def _attention(layout: str = "BNSD", **options: Any) -> tuple[Tensor, Tensor, Tensor, Any]:
    m = Make(torch.float64)
    q, k, v = m.normal(2, 4, 5, 8), m.normal(2, 2, 5, 8), m.normal(2, 2, 5, 6)
    bound = {"query": q, "key": k, "value": v, "head_num": 4, "input_layout": layout, **options}
    return q, k, v, bound


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_torch_s(causal: bool) -> None:
    """SDPA as the reference uses it on a GPU gives the plain formula's result."""
    options: dict[str, Any] = {"scale": 0.3}
    if causal:
        options.update(atten_mask=CAUSAL, sparse_mode=2)
    q, k, v, bound = _attention(**options)
    plain = op("npu_fusion_attention").golden(**bound)[0]
    schema = op("npu_fusion_attention").schemas[0]
    call = attention_forward.call_of({**{a.name: a.default for a in schema.arguments}, **bound})
    torch.testing.assert_close(attention_forward.sdpa(call, *heads_of(call, q, k, v)), plain)


def test_torch_s_attention_is_taken_only_where_it_is_the_same() -> None:
    class OnGpu:
        is_cuda = True

    on_gpu = OnGpu()

    def applies(rows: int, columns: int, run: Any = OWN, query: Any = on_gpu, **options: Any) -> bool:
        _, _, _, bound = _attention(**options)
        schema = op("npu_fusion_attention").schemas[0]
        call = attention_forward.call_of({**{a.name: a.default for a in schema.arguments}, **bound})
        return attention_forward.sdpa_is_the_same(run, call, rows, columns, query)

    assert applies(5, 5)
    assert applies(5, 7, atten_mask=CAUSAL, sparse_mode=2)
    assert applies(5, 5, atten_mask=CAUSAL, sparse_mode=3)
    assert not applies(5, 5, query=torch.ones(1))
    assert not applies(5, 5, run=GOLDEN)
    assert not applies(5, 0)
    assert not applies(5, 7, atten_mask=CAUSAL, sparse_mode=3)
    assert not applies(5, 5, atten_mask=CAUSAL[:5, :5])
    assert not applies(5, 5, atten_mask=CAUSAL, sparse_mode=4)
    assert not applies(5, 5, sink=torch.ones(4))
    assert not applies(5, 5, keep_prob=0.5)
    assert not applies(5, 5, pse=torch.ones(1, 4, 5, 5))

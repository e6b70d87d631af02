"""Every explicit backward operator against autograd through its forward, in float64, and gradcheck of the forward."""

from __future__ import annotations

from typing import Any

import gradient_pairs_layers as layers
import gradient_pairs_matrices as matrices
import gradient_pairs_moe as moe
import pytest
import torch
from fused_make import Make
from gradient_pairs import Pair
from torch import Tensor

import fused_ops

torch.set_num_threads(1)
PAIRS = (*layers.PAIRS, *matrices.PAIRS, *moe.PAIRS)


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("pair", [pytest.param(pair, id=pair.id()) for pair in PAIRS])
def test_backward_is_the_gradient_of_the_forward(pair: Pair) -> None:
    arguments = pair.make(Make(torch.float64, seed=3))
    for name in pair.wrt:
        arguments[name].requires_grad_()
    results = listed(fused_ops.reference(pair.forward).golden(**arguments))
    generator = torch.Generator().manual_seed(5)
    wanted = [results[index] for index in pair.outputs]
    grads = [torch.randn(item.shape, generator=generator, dtype=torch.float64) for item in wanted]
    expected = torch.autograd.grad(wanted, [arguments[name] for name in pair.wrt], grads)
    explicit = listed(fused_ops.reference(pair.backward).golden(**pair.back(arguments, results, grads)))
    for index, value in enumerate(expected):
        torch.testing.assert_close(explicit[index].detach(), value, **pair.tolerance)


@pytest.mark.parametrize(
    "pair", [pytest.param(pair, id=pair.id()) for pair in PAIRS if "confusion" not in pair.forward]
)
def test_gradcheck_of_the_forward(pair: Pair) -> None:
    arguments = pair.make(Make(torch.float64, seed=3))
    op = fused_ops.reference(pair.forward)

    def forward(*values: Tensor) -> tuple[Tensor, ...]:
        results = listed(op.golden(**{**arguments, **dict(zip(pair.wrt, values, strict=True))}))
        return tuple(results[index] for index in pair.outputs)

    inputs = [arguments[name].clone().requires_grad_() for name in pair.wrt]
    assert torch.autograd.gradcheck(forward, inputs, fast_mode=True)


def test_every_backward_operator_is_paired() -> None:
    named = {pair.backward for pair in PAIRS}
    backward = {name for name in fused_ops.names() if fused_ops.reference(name).backward_of}
    assert backward - named == {
        "matmul_backward",  # of torch.matmul: test_fused_against_torch.py
        "npu_dtype_cast_backward",  # a cast: test_fused_movement.py
        "npu_fusion_attention_grad",  # test_fused_attention_gradients.py
        "npu_fusion_attention_grad_v2",
        "npu_fusion_attention_grad_v3",
    }


def test_backward_operators_name_a_registered_forward() -> None:
    for name in fused_ops.names():
        forward = fused_ops.reference(name).backward_of
        assert forward is None or forward == "matmul" or forward in fused_ops.names()

"""What each call is called, and which calls are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

x = torch.arange(6.0).reshape(2, 3)
w = torch.ones(4, 3)
norm = torch.nn.LayerNorm(3)

NAMES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "function": (lambda: torch.matmul(x, x.T), ["Torch.matmul.0"]),
    "method": (lambda: x.matmul(x.mT), ["Tensor.matmul.0"]),
    "functional": (lambda: F.linear(x, w), ["Functional.linear.0"]),
    "functional in Python": (lambda: F.softmax(x, -1), ["Functional.softmax.0"]),
    "operator": (lambda: x + 1, ["Tensor.add.0"]),
    "reflected operator": (lambda: 1 + x, ["Tensor.add.0"]),
    "matrix operator": (lambda: x @ x.T, ["Tensor.matmul.0"]),
    "in-place method": (lambda: x.clone().add_(1), ["Tensor.clone.0", "Tensor.add_.0"]),
    "getitem": (lambda: x[0], ["Tensor.__getitem__.0"]),
    "linalg": (lambda: torch.linalg.norm(x), ["Torch.linalg.norm.0"]),
    "fft": (lambda: torch.fft.fft(x), ["Torch.fft.fft.0"]),
    "special": (lambda: torch.special.expit(x), ["Torch.special.expit.0"]),
    "aten packet": (lambda: torch.ops.aten.mul(x, 2), ["Aten.mul.0"]),
    "aten overload": (lambda: torch.ops.aten.mul.Tensor(x, x), ["Aten.mul.0"]),
    "creation": (lambda: torch.arange(3), ["Torch.arange.0"]),
    "foreach": (lambda: torch._foreach_add([x, x], 1.0), ["Torch._foreach_add.0"]),
    "numbers grow": (lambda: (x.abs(), x.abs(), torch.abs(x)), ["Tensor.abs.0", "Tensor.abs.1", "Torch.abs.0"]),
    "module": (lambda: norm(x), ["Functional.layer_norm.0"]),
    "nested calls are not seen": (lambda: F.cross_entropy(x, torch.tensor([0, 1])), ["Functional.cross_entropy.0"]),
    "properties": (lambda: (x.shape, x.dtype, x.device, x.T, x.requires_grad, x.grad), []),
    "metadata": (lambda: (x.size(), x.dim(), x.stride(), x.numel(), x.is_contiguous(), x.data_ptr(), len(x)), []),
    "conversions": (lambda: (x.tolist(), x[0, 0].item(), repr(x), x.numpy()), ["Tensor.__getitem__.0"]),
    "gradient switches": (lambda: torch.ones(1).requires_grad_(), ["Torch.ones.0"]),
}


@pytest.mark.parametrize("case", sorted(NAMES))
def test_names(case: str, record: Any) -> None:
    program, names = NAMES[case]
    assert [bundle.header.api for bundle in record(lambda debugger: program()) if _is_call(bundle)] == names


def _is_call(bundle: Any) -> bool:
    """Makers inside a module's or a case's own set-up are calls too, but not what the case is about."""
    return not bundle.header.api.startswith(("Torch.empty", "Torch.tensor"))


def test_a_composite_is_opened_one_level(record: Any) -> None:
    attention = torch.nn.MultiheadAttention(4, 2)
    q = torch.randn(3, 1, 4)
    names = [bundle.header.api.rpartition(".")[0] for bundle in record(lambda debugger: attention(q, q, q))]
    assert "Functional.multi_head_attention_forward" not in names
    assert names.count("Functional.linear") >= 2


def test_numbers_and_order_are_the_same_with_filters(record: Any) -> None:
    def program(debugger: Any) -> None:
        for _ in range(3):
            (x + 1).mul(2).abs()

    everything = {bundle.header.api: bundle.header.seq for bundle in record(program)}
    some = {bundle.header.api: bundle.header.seq for bundle in record(program, white_list=["mul"])}
    assert sorted(some) == ["Tensor.mul.0", "Tensor.mul.1", "Tensor.mul.2"]
    assert all(everything[api] == seq for api, seq in some.items())


def test_numbers_begin_anew_in_each_step(record: Any) -> None:
    def program(debugger: Any) -> None:
        for _ in range(2):
            x.abs()
            x.abs()
            debugger.step()

    found = [(b.header.step, b.header.seq, b.header.api) for b in record(program)]
    assert found == [(s, n, f"Tensor.abs.{n}") for s in (0, 1) for n in (0, 1)]

"""Vendor calls of a training captured by the writer on the simulated device, judged by the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_npu import FakeNpu, fake_npu
from processes import left_in, rows_of
from torch.utils._python_dispatch import TorchDispatchMode

from spool import Bundle, SessionInfo, Spool, open_spool
from spool_check import PrecisionDebugger
from spool_reader.watch import reprocess

torch.set_num_threads(1)
COMPRESSED = torch.ones(2048, 2048, dtype=torch.bool).triu(1)


@pytest.fixture
def npu() -> Iterator[FakeNpu]:
    with fake_npu() as device:
        yield device


def training_step(dtype: torch.dtype = torch.float32) -> None:
    """One step of a small attention block written with vendor calls, forward, backward and optimiser."""
    import torch_npu

    generator = torch.Generator().manual_seed(7)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    x, gamma = normal(2, 6, 16).requires_grad_(), normal(16).requires_grad_()
    weight = normal(16, 8).requires_grad_()
    cos, sin = normal(1, 6, 1, 4), normal(1, 6, 1, 4)
    y, _ = torch_npu.npu_rms_norm(x, gamma, epsilon=1e-5)
    q = torch_npu.npu_rotary_mul(y.reshape(2, 6, 4, 4), cos, sin, "half").reshape(2, 6, 16)
    attended = torch_npu.npu_fusion_attention(
        q, y, y, 4, "BSH", atten_mask=COMPRESSED, scale=0.5, sparse_mode=3, keep_prob=1.0
    )[0]
    gated = torch_npu.npu_swiglu(torch.ops.npu.fast_gelu(attended))
    torch_npu.npu_linear(gated.reshape(12, 8), weight).square().sum().backward()
    torch_npu.npu_moe_gating_top_k_softmax(x.detach(), k=2)
    torch_npu.npu_confusion_transpose(x.detach(), [0, 2, 1], [2, 96], True)
    state = (normal(16), torch.zeros(16, dtype=dtype), torch.zeros(16, dtype=dtype))
    torch_npu.npu_apply_adam_w(
        1.0, 1.0, 0.01, 0.1, 0.9, 0.999, epsilon=1e-8, grad=gamma.grad.to(dtype), max_grad_norm=None, amsgrad=None, maximize=None,
        out=state,
    )  # fmt: skip


FORWARD = {
    "NPU.npu_rms_norm.0",
    "NPU.npu_rotary_mul.0",
    "NPU.npu_fusion_attention.0",
    "NPU.fast_gelu.0",
    "NPU.npu_swiglu.0",
    "NPU.npu_linear.0",
    "NPU.npu_moe_gating_top_k_softmax.0",
    "NPU.npu_confusion_transpose.0",
    "NPU.npu_apply_adam_w.0",
}
BACKWARD = {
    "NPU.npu_rms_norm_backward.0",
    "NPU.npu_rotary_mul_backward.0",
    "NPU.npu_fusion_attention_grad.0",
    "NPU.npu_fast_gelu_backward.0",
    "NPU.npu_swiglu_backward.0",
    "NPU.npu_linear_backward.0",
}


def judged(tmp_path: Path, dtype: torch.dtype = torch.float32) -> dict[str, dict[str, Any]]:
    """Rows of a training step, by API name."""
    spool = tmp_path / "spool"
    spool.mkdir()
    with PrecisionDebugger(spool=spool, strict=True):
        training_step(dtype)
    return _read(spool, tmp_path / "results")


def _read(spool: Path, results: Path) -> dict[str, dict[str, Any]]:
    reprocess(spool, out=results, workers=0, device="cpu")
    assert left_in(spool) == []
    return {row["api"]: row for row in rows_of(results) if row["api"].startswith("NPU.")}


def _failures(rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {api: row["message"] for api, row in rows.items() if row["verdict"] not in {"pass", "warning"}}


DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_healthy_device_passes(npu: FakeNpu, tmp_path: Path, dtype: torch.dtype) -> None:
    rows = judged(tmp_path, dtype)
    assert FORWARD <= set(rows) <= FORWARD | BACKWARD
    assert _failures(rows) == {}


class _VendorCalls(TorchDispatchMode):
    """Bundles of the vendor operators below autograd, as a writer records a backward pass."""

    def __init__(self, spool: Spool) -> None:
        super().__init__()
        self._spool = spool
        self._count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace == "npu":
            bundle = Bundle.build(
                session="s1",
                rank=0,
                step=0,
                seq=self._count,
                api=f"NPU.{func.overloadpacket.__name__}.0",
                phase="backward",
                args=args,
                kwargs=kwargs or {},
                result=result,
                context={},
                producer={"device": "npu:0"},
                time=0.0,
            )
            self._count += 1
            self._spool.publish(bundle)
        return result


def judged_backward(tmp_path: Path, dtype: torch.dtype = torch.float32) -> dict[str, dict[str, Any]]:
    """Rows of the vendor operators that one training step runs inside autograd."""
    path = tmp_path / "spool"
    with open_spool(path, create=True) as spool:
        session = spool.open_session(SessionInfo("s1", 0, "host", 1, "0", 0.0))
        with _VendorCalls(spool):
            training_step(dtype)
        session.close("closed", {})
    rows = _read(path, tmp_path / "results")
    return {api: row for api, row in rows.items() if api in BACKWARD}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_healthy_device_passes_backward(npu: FakeNpu, tmp_path: Path, dtype: torch.dtype) -> None:
    rows = judged_backward(tmp_path, dtype)
    assert set(rows) == BACKWARD
    assert _failures(rows) == {}


# operator: how its kernel goes wrong in the backward pass
BACKWARD_FAULTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "a key gradient": ("npu_fusion_attention_grad", lambda dq, dk, dv, *rest: (dq, dk * 0.9, dv, *rest)),
    "a sum forgotten": ("npu_rms_norm_backward", lambda dx, dgamma: (dx, dgamma / 12)),
    "a sign": ("npu_swiglu_backward", lambda dx: -dx),
}


@pytest.mark.parametrize("name", BACKWARD_FAULTS)
def test_a_backward_fault_is_an_error_of_its_own_call_alone(npu: FakeNpu, tmp_path: Path, name: str) -> None:
    operator, change = BACKWARD_FAULTS[name]
    with npu.fault(operator, change):
        rows = judged_backward(tmp_path)
    assert {api for api, row in rows.items() if row["verdict"] == "error"} == {f"NPU.{operator}.0"}


# operator: how its kernel goes wrong
FAULTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "one wrong factor": ("npu_rms_norm", lambda y, rstd: (y * 1.02, rstd)),
    "rstd forgotten": ("npu_rms_norm", lambda y, rstd: (y, torch.zeros_like(rstd))),
    "a row lost": ("npu_fusion_attention", lambda out, *rest: (out.index_fill(1, torch.tensor([3]), 0.0), *rest)),
    "a sum of weights": ("npu_fusion_attention", lambda out, top, total, *rest: (out, top, total * 1.1, *rest)),
    "an index": ("npu_moe_gating_top_k_softmax", lambda y, index, row: (y, (index + 1) % 16, row)),
    "one element": ("npu_confusion_transpose", lambda x: x.index_fill(1, torch.tensor([5]), 0.25)),
    "a moment": ("npu_apply_adam_w", lambda var, m, v: (var, m * 1.05, v)),
    "not a number": ("npu_swiglu", lambda y: y.index_fill(0, torch.tensor([0]), torch.nan)),
}


# Calls that are blamed too, since a wrong value is an argument of theirs that device and reference use differently: the simulated
# gradient of attention makes its own sum of weights where the reference takes the recorded one, and lets a gradient that is no
# number through masked places, which the reference leaves out.
CONSEQUENCES = {
    "a sum of weights": {"NPU.npu_fusion_attention_grad.0"},
    "not a number": {"NPU.npu_fusion_attention_grad.0"},
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_an_error_of_its_own_call_alone(npu: FakeNpu, tmp_path: Path, name: str) -> None:
    operator, change = FAULTS[name]
    with npu.fault(operator, change):
        rows = judged(tmp_path)
    wrong = {api for api, row in rows.items() if row["verdict"] == "error"}
    assert wrong == {f"NPU.{operator}.0"} | CONSEQUENCES.get(name, set())


def test_calls_that_cannot_be_judged_are_skip_rows(npu: FakeNpu, tmp_path: Path) -> None:
    import torch_npu

    spool = tmp_path / "spool"
    spool.mkdir()
    q = torch.randn(1, 2, 4, 8)
    with PrecisionDebugger(spool=spool, strict=True):
        torch_npu.npu_fusion_attention(q, q, q, 2, "BNSD", padding_mask=torch.zeros(1))
        torch_npu.npu_fusion_attention(q, q, q, 2, "BNSD", atten_mask=torch.zeros(4, 4).bool(), next_tockens=0)
    reprocess(spool, out=tmp_path / "results", workers=0, device="cpu")
    rows = [row for row in rows_of(tmp_path / "results") if row["api"].startswith("NPU.")]
    assert [row["verdict"] for row in rows] == ["skip", "skip"]
    assert "padding_mask" in str(rows[0])
    assert "contract violation" in str(rows[1])

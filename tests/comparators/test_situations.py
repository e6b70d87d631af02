"""Situations that broke tools of this kind, one row each."""

from __future__ import annotations

import json
import math

import pytest
import torch

from comparators import is_random, judge, needs_golden, standard_of

NAN, INF = math.nan, math.inf
T = torch.tensor
x5 = T([3.0, 1.0, 3.0, 2.0, 3.0])

CASES = [
    # name, api, device, reference, args, verdict, word in the message
    ("both empty", "Torch.cat.0", torch.empty(0, 3), torch.empty(0, 3), (), "skip", "nothing to compare"),
    ("empty, other shape", "Torch.cat.0", torch.empty(0, 3), torch.empty(0, 4), (), "error", "shape"),
    ("scalar 0-d", "Torch.sum.0", T(3.0), T(3.0), (), "pass", ""),
    ("0-d against 1-d", "Torch.sum.0", T([3.0]), T(3.0), (), "error", "shape"),
    ("None twice", "Tensor.__setitem__.0", None, None, (), "skip", "None"),
    ("None against tensor", "Torch.exp.0", None, T(1.0), (), "error", "type"),
    ("no outputs", "Torch.split.0", (), (), (), "skip", "nothing to compare"),
    ("missing output", "Torch.split.0", (T(1.0),), (T(1.0), T(2.0)), (), "error", "missing"),
    ("surplus output", "Torch.split.0", (T(1.0), T(2.0)), (T(1.0),), (), "error", "surplus"),
    ("shape", "Torch.exp.0", torch.ones(3, 1), torch.ones(3), (), "error", "shape"),
    ("dtype", "Torch.exp.0", torch.ones(3, dtype=torch.bfloat16), torch.ones(3), (), "error", "dtype"),
    ("kind", "Torch.exp.0", torch.ones(3, dtype=torch.int64), torch.ones(3), (), "error", "dtype"),
    ("python int", "Tensor.item.0", 3, 3, (), "pass", ""),
    ("python nan", "Tensor.item.0", NAN, NAN, (), "pass", ""),
    ("python bool", "Torch.equal.0", True, False, (), "error", "True against False"),
    ("bool against int", "Torch.equal.0", True, 1, (), "error", "type"),
    ("all nan", "Torch.exp.0", T([NAN] * 3), T([1.0, 2, 3]), (), "error", "special"),
    ("one inf, absolute", "Torch.mul.0", T([INF, 2, 3]), T([1.0, 2, 3]), (), "error", "special"),
    ("nan in the reference", "Torch.relu.0", T([1.0, 2, 3]), T([NAN, 2, 3]), (), "error", "special"),
    ("equal specials", "Torch.exp.0", T([NAN, INF, 1]), T([NAN, INF, 1]), (), "pass", ""),
    ("equal specials only", "Torch.exp.0", T([NAN, INF]), T([NAN, INF]), (), "pass", "special values agree"),
    ("specials agree, the rest decides", "Torch.mul.0", T([NAN, 2.0]), T([NAN, 1.0]), (), "error", ""),
    ("opposite inf", "Torch.exp.0", T([-INF, 1]), T([INF, 1]), (), "error", "special"),
    ("inf against nan", "Torch.exp.0", T([INF, 1]), T([NAN, 1]), (), "error", "special"),
    ("small absolute error", "Torch.mul.0", T([1.9e-4]), T([1e-4]), (), "error", ""),
    ("small value against zero", "Torch.mul.0", T([5e-4]), T([0.0]), (), "error", ""),
    ("the same, three-way", "Torch.exp.0", T([5e-4]), T([0.0]), (), "error", ""),
    ("ties in topk", "Torch.topk.0", (T([3.0, 3.0]), T([4, 0])), (T([3.0, 3.0]), T([0, 2])), (x5, 2), "pass", ""),
    (
        "an index twice",
        "Torch.topk.0",
        (T([3.0, 3.0]), T([0, 0])),
        (T([3.0, 3.0]), T([0, 2])),
        (x5, 2),
        "error",
        "twice",
    ),
    ("wrong index", "Torch.topk.0", (T([3.0, 3.0]), T([0, 1])), (T([3.0, 3.0]), T([0, 2])), (x5, 2), "error", "points"),
    ("index outside", "Torch.argmax.0", T(9), T(0), (x5,), "error", "outside"),
    (
        "sort with stable first",
        "Aten.sort.0",
        (T([1.0, 3, 3]), T([0, 2, 1])),
        (T([1.0, 3, 3]), T([0, 1, 2])),
        (T([1.0, 3, 3]), True, 0),
        "pass",
        "",
    ),
    ("tie in argmax", "Torch.argmax.0", T(2), T(0), (x5,), "pass", "ties"),
    ("wrong argmax", "Torch.argmax.0", T(3), T(0), (x5,), "error", "points"),
    ("int off by one", "Torch.bincount.0", T([1, 2, 4]), T([1, 2, 3]), (), "error", "1 of 3"),
    (
        "int8 quantised",
        "NPU.npu_quantize.0",
        T([1, 2], dtype=torch.int8),
        T([1, 3], dtype=torch.int8),
        (),
        "pass",
        "one",
    ),
    (
        "int8 off by two",
        "NPU.npu_quantize.0",
        T([1, 1], dtype=torch.int8),
        T([1, 3], dtype=torch.int8),
        (),
        "error",
        "",
    ),
    ("uninitialised", "Torch.empty_like.0", T([1.0]), T([2.0]), (), "skip", "uninitialised"),
    ("random", "Torch.rand.0", T([1.0]), T([2.0]), (), "skip", "random"),
    ("float64 near its end", "Torch.exp.0", x5.double() * 1e200, x5.double() * 1e200, (), "pass", ""),
    ("the same, wrong", "Torch.exp.0", x5.double() * 1e200, x5.double().flip(0) * -1e200, (), "error", "cosine"),
    ("complex", "Torch.fft.0", T([1 + 1j, 2]), T([1 + 1j, 2]), (), "pass", ""),
    ("imaginary part off", "Torch.fft.0", T([1 + 1.5j, 2]), T([1 + 1j, 2]), (), "error", ""),
    ("float64", "Torch.matmul.0", T([1.0, 2], dtype=torch.float64), T([1.0, 2], dtype=torch.float64), (), "pass", ""),
    (
        "wrong float64",
        "Torch.mul.0",
        T([1.1, 2], dtype=torch.float64),
        T([1.0, 2], dtype=torch.float64),
        (),
        "error",
        "",
    ),
    ("named tuple, nested", "Torch.x.0", {"a": (T(1.0), None)}, {"a": (T(1.0), None)}, (), "pass", ""),
    ("other keys", "Torch.x.0", {"a": T(1.0)}, {"b": T(1.0)}, (), "error", "missing"),
    (
        "one wild element",
        "Torch.matmul.0",
        torch.ones(10**5).index_fill(0, T(7), 9.0),
        torch.ones(10**5),
        (),
        "error",
        "out",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_situation(case: tuple) -> None:
    _, api, device, reference, args, verdict, word = case
    judged = judge(api, device, reference, args=args)
    assert judged.verdict == verdict, str(judged)
    assert bool(judged) == (verdict != "error")
    assert word in str(judged)
    json.dumps(judged.to_json(), allow_nan=False)


def test_named_results_carry_their_names() -> None:
    device = torch.max(torch.eye(3), 0)
    judged = judge("Torch.max.0", device, device)
    assert [output.path for output in judged.outputs] == ["values", "indices"]


def test_the_worst_element_is_named() -> None:
    reference = torch.ones(4, 5)
    device = reference.clone()
    device[2, 3] = 2.0
    (output,) = judge("Torch.mul.0", device, reference).outputs
    assert output.worst == {"index": [2, 3], "device": 2.0, "reference": 1.0}
    assert output.would_pass is not None
    assert output.would_pass["atol"] == 1.0
    assert output.ratio is not None
    assert output.ratio > 1


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_is_judged_with_its_own_ulp(name: str) -> None:
    dtype = getattr(torch, name)
    exact = torch.linspace(1, 200, 64)
    device = exact.to(dtype)
    assert judge("Torch.exp.0", device, device.clone(), exact)
    wrong = (device.float() * 4).to(dtype)
    assert not judge("Torch.exp.0", wrong, device, exact)


def test_overflow_on_both_devices_is_no_fault() -> None:
    golden = T([7e4, 1.0, 2.0])
    device = golden.half()
    assert device.isinf().any()
    assert judge("Torch.exp.0", device, device.clone(), golden).verdict == "pass"


DROPPED = torch.nn.functional.dropout(torch.ones(10_000), 0.25)
DROPOUTS = [
    ("right", DROPPED, 0.25, "pass"),
    ("survivors too large", DROPPED * 5, 0.25, "error"),
    ("nothing dropped", torch.full((10_000,), 1 / 0.75), 0.25, "error"),
    ("too many dropped", torch.nn.functional.dropout(torch.ones(10_000), 0.5) * 0.5 / 0.75, 0.25, "error"),
    ("few elements, wrong scale", torch.full((5,), 7.0), 0.5, "error"),
    ("few elements, right", T([2.0, 0.0, 2.0, 0.0, 2.0]), 0.5, "pass"),
]


@pytest.mark.parametrize("case", DROPOUTS, ids=[case[0] for case in DROPOUTS])
def test_dropout(case: tuple) -> None:
    _, device, rate, verdict = case
    source = torch.ones_like(device)
    reference = torch.nn.functional.dropout(source, rate)
    judged = judge("Functional.dropout.0", device, reference, args=(source, rate, True))
    assert judged.verdict == verdict, str(judged)


def test_dropout_in_evaluation_is_compared() -> None:
    source = torch.ones(10)
    kwargs = {"p": 0.5, "training": False}
    assert judge("Functional.dropout.0", source, source, args=(source,), kwargs=kwargs)
    assert not judge("Functional.dropout.0", source * 2, source, args=(source,), kwargs=kwargs)


RANDOM = [
    ("Torch.randn.0", (), {}, True),
    ("Tensor.normal_.0", (), {}, True),
    ("Functional.dropout.0", (torch.ones(2),), {}, False),
    ("Functional.scaled_dot_product_attention.0", (), {"dropout_p": 0.1}, True),
    ("Functional.scaled_dot_product_attention.0", (), {}, False),
    ("Functional.rrelu.0", (torch.ones(2),), {"training": True}, True),
]


@pytest.mark.parametrize("case", RANDOM, ids=lambda case: case[0])
def test_random_calls_are_known(case: tuple) -> None:
    api, args, kwargs, random = case
    assert (is_random(api, args, kwargs) is not None) == random


STANDARDS = {
    "Torch.mul.3": "absolute threshold",
    "Tensor.__truediv__.0": "absolute threshold",
    "Tensor.add_.1": "absolute threshold",
    "Aten.mm.11": "ULP",
    "Functional.conv2d.0": "thousandth",
    "Tensor.view.0": "binary consistency",
    "Tensor.__getitem__.0": "binary consistency",
    "Tensor.clamp_.0": "binary consistency",
    "Torch.linalg.norm.0": "benchmark",
    "NPU.npu_rms_norm.2": "benchmark",
    "Custom.mylib.op.3": "benchmark",
    "Custom.mylib.add.3": "benchmark",
}


@pytest.mark.parametrize("api", STANDARDS)
def test_standard_of(api: str) -> None:
    assert standard_of(api) == STANDARDS[api]
    assert needs_golden(api, torch.ones(2)) == (STANDARDS[api] in ("ULP", "benchmark"))
    assert not needs_golden(api, torch.ones(2, dtype=torch.int64))

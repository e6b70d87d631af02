"""Published check vectors, by hand or from the operators' documentation, of everything but attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import fused_ops


def f(*values: Any) -> Tensor:
    """A float64 tensor."""
    return torch.tensor(values if len(values) != 1 else values[0], dtype=torch.float64)


@dataclass(frozen=True)
class Vector:
    """A call by schema names and some of its results, flattened, by index."""

    op: str
    arguments: dict[str, Any]
    results: dict[int, list[float]]
    label: str = ""
    tolerance: float = 1e-6


_ADAM = {
    "beta1": 0.9,
    "beta2": 0.999,
    "lr": 0.01,
    "epsilon": 1e-8,
    "beta1_power": 0.9,
    "beta2_power": 0.999,
    "grad": f(0.5, -1.0),
    "var": f(1.0, 2.0),
    "m": f(0.1, -0.2),
    "v": f(0.01, 0.04),
}
_ADAM_W = {**_ADAM, "weight_decay": 0.1, "max_grad_norm": f(0.5, 0.01), "amsgrad": None, "maximize": None}
_EIGHT = {
    "self": f(1, 2, 3, 4, 5, 6, 7, 8),
    "r1": f(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    "r2": f(0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6),
}
_FOUR = {"self": f(1, 2, 3, 4), "r1": f(0.1, 0.2, 0.3, 0.4), "r2": f(0.5, 0.6, 0.7, 0.8)}
_RMS = {"self": f(1, 2, 3, 4, 5, 6, 7, 8).reshape(2, 2, 2), "gamma": f([[1.0, 2.0], [3.0, 4.0]]), "epsilon": 1e-6}
_GROUPS = {
    "input": f([[1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6], [4, 5, 6, 7]]).reshape(1, 4, 4),
    "group": 2,
    "weight": f(1, 2, 1, 2),
    "bias": f(0, 1, 0, 1),
}
_ROWS = [-0.2668653, -0.2502622, 0, 0.5662316, -0.2195413, 0.7310586, 2.4564582, 4.2069180]
_MASKED = {"x": f(1, 2, 3), "scale": 0.5}
_HALF_MASK = torch.tensor([False, False, True])
_WHOLE_MASK = torch.ones(3, dtype=torch.bool)
_SCORES = f([[1, 3, 3, 2], [0, 0, 0, 0]])

VECTORS = (
    Vector(
        "npu_apply_adam",
        {**_ADAM, "use_locking": None, "use_nesterov": None},
        {0: [0.9956250, 2.0043750], 1: [0.14, -0.28], 2: [0.01024, 0.04096]},
        "plain",
    ),
    Vector(
        "npu_apply_adam", {**_ADAM, "use_locking": True, "use_nesterov": True}, {0: [0.9945000, 2.0055000]}, "nesterov"
    ),
    Vector("npu_apply_adam_w", _ADAM_W, {0: [0.9957444, 2.0012556]}, "plain"),
    Vector("npu_apply_adam_w", {**_ADAM_W, "amsgrad": True}, {0: [0.9985341, 2.0012556]}, "amsgrad"),
    Vector(
        "npu_apply_adam_w", {**_ADAM_W, "maximize": True}, {0: [0.9980698, 1.9989302], 1: [0.04, -0.08]}, "maximize"
    ),
    Vector(
        "npu_confusion_transpose",
        {"self": torch.arange(24).reshape(2, 3, 4), "perm": [0, 2, 1], "shape": [2, 12], "transpose_first": True},
        {0: [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, 12, 16, 20, 13, 17, 21, 14, 18, 22, 15, 19, 23]},
        "first",
    ),
    Vector(
        "npu_confusion_transpose",
        {"self": torch.arange(24).reshape(2, 3, 4), "perm": [1, 0, 2], "shape": [3, 2, 4], "transpose_first": False},
        {0: [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23]},
        "last",
    ),
    Vector("npu_fast_gelu", {"self": f(1, 2, 3, 4)}, {0: [0.8458, 1.9357, 2.9819, 3.9956]}, tolerance=5e-5),
    Vector(
        "npu_fast_gelu_backward",
        {"grad": torch.ones(4).double(), "self": f(1, 2, 3, 4)},
        {0: [1.0677795, 1.0738151, 1.0245483, 1.0064018]},
    ),
    Vector("fast_gelu", {"self": f([-1e4])}, {0: [0.0]}, "far left"),
    Vector(
        "npu_layer_norm_eval",
        {"input": f(1, 2, 3, 4), "normalized_shape": [4], "weight": f(1, 2, 3, 4), "bias": f([0.5] * 4)},
        {0: [-0.8416354, -0.3944236, 1.8416354, 5.8665417]},
        "default eps",
    ),
    Vector(
        "npu_layer_norm_eval",
        {"input": f(1, 2, 3, 4), "normalized_shape": [4], "weight": f(1, 2, 3, 4), "bias": f([0.5] * 4), "eps": 1.0},
        {0: [-0.5, -0.1666667, 1.5, 4.5]},
        "eps 1",
    ),
    Vector(
        "npu_rms_norm",
        _RMS,
        {
            0: [0.3651483, 1.4605934, 3.2863351, 5.8423736, 0.7580980, 1.8194353, 3.1840117, 4.8518274],
            1: [0.3651483, 0.1516196],
        },
    ),
    Vector("npu_rotary_mul", {**_FOUR, "rotary_mode": "half"}, {0: [-1.4, -2, 1.6, 3.2]}, "half of four"),
    Vector("npu_rotary_mul", {**_FOUR, "rotary_mode": "interleave"}, {0: [-0.9, 1, -1.9, 4]}, "interleave of four"),
    Vector("npu_rotary_mul", {**_FOUR, "rotary_mode": "interleave-half"}, {0: [-0.9, -1.8, 1.3, 4]}, "interleave-half"),
    Vector("npu_rotary_mul", _EIGHT, {0: [-4.4, -5.6, -6.8, -8, 3.8, 6.4, 9.4, 12.8]}, "half of eight"),
    Vector(
        "npu_rotary_mul",
        {**_EIGHT, "rotary_mode": "interleave"},
        {0: [-1.7, 1.4, -3.5, 5.2, -5.3, 10.6, -7.1, 17.6]},
        "interleave of eight",
    ),
    Vector(
        "npu_rotary_mul",
        {**_EIGHT, "rotary_mode": "quarter"},
        {0: [-2.6, -3.6, 2, 4, -6.6, -7.6, 12.4, 16]},
        "quarter of eight",
    ),
    Vector(
        "npu_rotary_mul_backward",
        {"grad": f(1, 2, 3, 4), **_FOUR},
        {0: [2.2, 3.6, 0.4, 0.4], 1: [1, 4, 9, 16], 2: [-3, -8, 3, 8]},
        "half",
    ),
    Vector(
        "npu_rotary_mul_backward",
        {"grad": f(1, 2, 3, 4), **_FOUR, "rotary_mode": "interleave"},
        {0: [1.3, -0.1, 4.1, -0.5], 1: [1, 4, 9, 16], 2: [-2, 2, -12, 12]},
        "interleave",
    ),
    Vector("npu_scaled_masked_softmax", {**_MASKED, "mask": _HALF_MASK}, {0: [0.3775407, 0.6224593, 0]}, "one masked"),
    Vector("npu_scaled_masked_softmax", {**_MASKED, "mask": _WHOLE_MASK}, {0: [1 / 3, 1 / 3, 1 / 3]}, "all masked"),
    Vector(
        "npu_scaled_masked_softmax_backward",
        {
            "y_grad": f(1, 2, 3),
            "y": f(0.377540668798, 0.622459331202, 0),
            "mask": _HALF_MASK,
            "scale": 0.5,
            "fixed_triu_mask": False,
        },
        {0: [-0.1175019, 0.1175019, 0]},
        "one masked",
    ),
    Vector(
        "npu_scaled_masked_softmax_backward",
        {
            "y_grad": f(1, 2, 3),
            "y": f(1 / 3, 1 / 3, 1 / 3),
            "mask": _WHOLE_MASK,
            "scale": 0.5,
            "fixed_triu_mask": False,
        },
        {0: [0, 0, 0]},
        "all masked",
    ),
    Vector("npu_swiglu", {"self": f(1, 2, 3, 4)}, {0: [2.1931757, 7.0463766]}),
    Vector(
        "npu_swiglu_backward",
        {"grad_output": f(1, 1), "self": f(1, 2, 3, 4)},
        {0: [2.7830115, 4.3631370, 0.7310586, 1.7615942]},
    ),
    Vector("npu_group_norm_silu", _GROUPS, {0: _ROWS + _ROWS, 1: [3, 5], 2: [0.8164939, 0.8164939]}),
    Vector("npu_mish", {"self": f(-1, 0, 1, 2)}, {0: [-0.3034015, 0, 0.8650984, 1.9439590]}),
    Vector(
        "npu_mish_backward",
        {"grad": torch.ones(4).double(), "input": f(-1, 0, 1, 2)},
        {0: [0.0592168, 0.6, 1.0490362, 1.0693179]},
    ),
    Vector(
        "npu_moe_gating_top_k_softmax",
        {"x": _SCORES, "k": 2},
        {0: [0.3994863, 0.3994863, 0.25, 0.25], 1: [1, 2, 0, 1], 2: [0, 2, 1, 3]},
        "ties",
    ),
    Vector(
        "npu_moe_gating_top_k_softmax",
        {"x": _SCORES, "k": 2, "finished": torch.tensor([False, True])},
        {0: [0.3994863, 0.3994863, 0.25, 0.25], 1: [1, 2, 4, 4]},
        "finished",
    ),
    Vector(
        "npu_pad",
        {"input": f([[20.0, 20, 10, 10]]), "paddings": [1, 1, 1, 1]},
        {0: [0] * 7 + [20, 20, 10, 10] + [0] * 7},
    ),
    Vector(
        "npu_one_hot",
        {"self": torch.tensor([5, 3, 2, 1]), "depth": 5},
        {0: [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]},
    ),
    Vector("npu_dtype_cast", {"self": f(0, 0.5, -1), "dtype": torch.int}, {0: [0, 0, -1]}),
    Vector(
        "npu_moe_init_routing",
        {
            "x": f([[0.1] * 2, [0.2] * 2, [0.3] * 2]),
            "row_idx": torch.tensor([[0, 3], [1, 4], [2, 5]], dtype=torch.int32),
            "expert_idx": torch.tensor([[1, 2], [0, 1], [0, 2]], dtype=torch.int32),
            "active_num": 3,
        },
        {
            0: [0.2] * 2 + [0.3] * 2 + [0.1] * 2 + [0.2] * 2 + [0.1] * 2 + [0.3] * 2,
            1: [2, 0, 1, 4, 3, 5],
            2: [0, 0, 1, 1, 2, 2],
        },
    ),
    Vector(
        "npu_moe_token_permute",
        {"tokens": f([[1.0], [2.0], [3.0]]), "indices": torch.tensor([[2, 0], [1, 2], [0, 1]])},
        {0: [1, 3, 2, 3, 1, 2], 1: [4, 0, 2, 5, 1, 3]},
    ),
    Vector(
        "npu_moe_finalize_routing",
        {
            "expanded_permuted_rows": f([[1.0], [10.0], [100.0], [1000.0]]),
            "skip1": f([[0.5], [0.25]]),
            "skip2": None,
            "bias": f([[7.0], [8.0]]),
            "scales": f([[1.0, 2.0], [3.0, 4.0]]),
            "expanded_src_to_dst_row": torch.tensor([2, 0, 3, -1], dtype=torch.int32),
            "export_for_source_row": torch.tensor([[0, 1], [1, 0]], dtype=torch.int32),
            "drop_pad_mode": 1,
        },
        {0: [0.5 + (100 + 7) + 2 * (1000 + 8), 0.25 + 3 * (1 + 8) + 4 * (0 + 7)]},
    ),
    Vector(
        "npu_clipped_swiglu",
        {"x": f([[1.0, 2.0, 9.0, -9.0]])},
        {0: [1 / (1 + 2.718281828459045**-1.702) * 3, 7 / (1 + 2.718281828459045 ** (-1.702 * 7)) * -6]},
        "interleaved and clipped",
    ),
    Vector(
        "npu_gemma_rms_norm", {"self": f([[3.0, 4.0]]), "gamma": f(0, 1), "epsilon": 0.0}, {0: [0.8485281, 2.2627417]}
    ),
)


@pytest.mark.parametrize("vector", [pytest.param(v, id=f"{v.op}-{v.label}") for v in VECTORS])
def test_vector(vector: Vector) -> None:
    op = fused_ops.reference(vector.op)
    for results in (op(**vector.arguments), op.golden(**vector.arguments)):
        outputs = results if isinstance(results, tuple) else (results,)
        for index, expected in vector.results.items():
            found = outputs[index].double().flatten()
            torch.testing.assert_close(
                found,
                torch.tensor(expected, dtype=torch.float64),
                rtol=0,
                atol=vector.tolerance * max(1, *map(abs, expected)),
            )


def test_rms_norm_gradients() -> None:
    op = fused_ops.reference("npu_rms_norm")
    _, rstd = op.golden(**_RMS)
    dx, dgamma = fused_ops.reference("npu_rms_norm_backward").golden(
        torch.ones(2, 2, 2).double(), _RMS["self"], _RMS["gamma"], rstd
    )
    torch.testing.assert_close(dgamma.flatten(), f(1.1232464, 1.6400143, 2.1567823, 2.6735503), rtol=0, atol=1e-6)
    torch.testing.assert_close(dx[1].flatten(), f(-0.1533624, -0.0627391, 0.0278841, 0.1185073), rtol=0, atol=1e-6)


def test_rms_norm_of_one_dimensional_gamma_keeps_the_leading_dimensions() -> None:
    _, rstd = fused_ops.reference("npu_rms_norm")(torch.ones(2, 2, 2), torch.ones(2))
    assert tuple(rstd.shape) == (2, 2, 1)


def test_powers_of_one_give_the_device_s_infinities() -> None:
    arguments = {**_ADAM, "beta1_power": 1.0, "beta2_power": 0.5, "use_locking": None, "use_nesterov": False}
    var, m, _ = fused_ops.reference("npu_apply_adam").golden(**arguments)
    assert torch.isinf(var).all()
    torch.testing.assert_close(m, f(0.14, -0.28))
    both = {**arguments, "beta2_power": 1.0}
    assert torch.isnan(fused_ops.reference("npu_apply_adam").golden(**both)[0]).all()


def test_float16_gating_orders_by_float16_probabilities() -> None:
    op = fused_ops.reference("npu_moe_gating_top_k_softmax")
    ties = 0
    for third in torch.linspace(0.0, 2.0, 64):
        x = torch.tensor([[0.5, 0.50048828125, float(third)]], dtype=torch.float16)
        probabilities = torch.softmax(x.float(), -1)
        if probabilities[0, 0].half() != probabilities[0, 1].half():
            continue
        # The second is larger in float32, but both are one float16 number: the lower index comes first.
        ties += 1
        assert probabilities[0, 1] > probabilities[0, 0]
        assert [i for i in op(x, k=3)[1].flatten().tolist() if i < 2] == [0, 1]
        assert [i for i in op(x.float(), k=3)[1].flatten().tolist() if i < 2] == [1, 0]
    assert ties > 5


def test_gating_without_choices_or_rows_is_empty() -> None:
    op = fused_ops.reference("npu_moe_gating_top_k_softmax")
    assert [tuple(item.shape) for item in op(torch.ones(3, 4), k=0)] == [(3, 0)] * 3
    assert [tuple(item.shape) for item in op(torch.ones(0, 4), k=2)] == [(0, 2)] * 3


def test_dropout_is_never_replayed_as_if_nothing_dropped() -> None:
    op = fused_ops.reference("npu_dropout_with_add_softmax")
    call = {"self": torch.ones(2, 3), "x1": torch.ones(2, 3), "alpha": 1.0, "prob": 0.5, "dim": -1}
    _, softmax, dropped = op(**call)
    torch.testing.assert_close(softmax, torch.full((2, 3), 1 / 3))
    assert torch.isnan(dropped).all()
    assert set(op.uncompared(**call)) == {0, 2}
    assert set(op.uncompared(**{**call, "prob": 0.0})) == {0}

"""Every explicit backward operator against autograd through its forward, in float64, and gradcheck of the forward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from fused_make import Make
from torch import Tensor

import fused_ops

torch.set_num_threads(1)
Results = Sequence[Any]


@dataclass(frozen=True)
class Pair:
    """`back` maps the forward's arguments, results and output gradients to the backward's arguments."""

    forward: str
    backward: str
    make: Callable[[Make], dict[str, Any]]
    wrt: tuple[str, ...]
    back: Callable[[dict[str, Any], Results, Results], dict[str, Any]]
    outputs: tuple[int, ...] = (0,)
    # Which result of the backward belongs to which argument of `wrt`.
    results: tuple[int, ...] = ()
    label: str = ""
    tolerance: dict[str, float] = field(default_factory=lambda: {"rtol": 1e-9, "atol": 1e-9})

    def id(self) -> str:
        return f"{self.backward}{'-' if self.label else ''}{self.label}"


def _rotary(mode: str, r1: tuple[int, ...], r2: tuple[int, ...], x: tuple[int, ...] = (2, 3, 4, 8)) -> Pair:
    return Pair(
        "npu_rotary_mul",
        "npu_rotary_mul_backward",
        lambda m: {"self": m.normal(*x), "r1": m.normal(*r1), "r2": m.normal(*r2), "rotary_mode": mode},
        ("self", "r1", "r2"),
        lambda a, r, g: {"grad": g[0], **a},
        label=f"{mode}-{len(x)}d-{r1}-{r2}",
    )


def _matmul_like(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Pair:
    return Pair(
        "npu_bmmV2",
        "npu_bmm_v2_mat1_backward",
        lambda m: {"self": m.normal(*shapes[0]), "mat2": m.normal(*shapes[1]), "output_sizes": ()},
        ("self",),
        lambda a, r, g: {"grad": g[0], "mat1": a["self"], "mat2": a["mat2"], "size": tuple(a["self"].shape)},
        label=f"{shapes}",
    )


def _matmul_like_second(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Pair:
    return Pair(
        "npu_bmmV2",
        "npu_bmm_v2_mat2_backward",
        lambda m: {"self": m.normal(*shapes[0]), "mat2": m.normal(*shapes[1]), "output_sizes": ()},
        ("mat2",),
        lambda a, r, g: {"grad": g[0], "mat1": a["self"], "mat2": a["mat2"], "size": tuple(a["mat2"].shape)},
        label=f"{shapes}",
    )


def _loss(reduction: str, smoothing: float, ignore: int) -> Pair:
    return Pair(
        "npu_cross_entropy_loss",
        "npu_cross_entropy_loss_backward",
        lambda m: {
            "input": m.normal(5, 4),
            "target": torch.tensor([0, 3, 2, 1, 3]),
            "weight": m.positive(4),
            "reduction": reduction,
            "ignore_index": ignore,
            "label_smoothing": smoothing,
        },
        ("input",),
        lambda a, r, g: {
            "grad_loss": g[0],
            "log_prob": r[1].detach(),
            **{name: value for name, value in a.items() if name != "input"},
        },
        label=f"{reduction}-{smoothing}-{ignore}",
    )


_SHAPES = (((2, 3, 4), (2, 4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)))
_EVEN_MAP = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=torch.bool)

PAIRS = (
    *(
        Pair(
            name,
            "npu_fast_gelu_backward",
            lambda m: {"self": m.normal(3, 4) * 3},
            ("self",),
            lambda a, r, g: {"grad": g[0], **a},
            label=name,
        )
        for name in ("fast_gelu", "npu_fast_gelu")
    ),
    Pair(
        "npu_mish",
        "npu_mish_backward",
        lambda m: {"self": m.normal(3, 4) * 9},
        ("self",),
        lambda a, r, g: {"grad": g[0], "input": a["self"]},
    ),
    *(
        Pair(
            "npu_gelu",
            "npu_gelu_backward",
            lambda m, form=form: {"self": m.normal(3, 4) * 3, "approximate": form},
            ("self",),
            lambda a, r, g: {"grad_output": g[0], **a},
            label=form,
        )
        for form in ("none", "tanh")
    ),
    Pair(
        "npu_silu",
        "npu_silu_backward",
        lambda m: {"self": m.normal(3, 4)},
        ("self",),
        lambda a, r, g: {"grad_output": g[0], "x0": a["self"], "x1": r[0]},
    ),
    *(
        Pair(
            "npu_swiglu",
            "npu_swiglu_backward",
            lambda m, dim=dim: {"self": m.normal(4, 2, 6), "dim": dim},
            ("self",),
            lambda a, r, g: {"grad_output": g[0], **a},
            label=f"dim{dim}",
        )
        for dim in (-1, 0, 1)
    ),
    *(
        Pair(
            "npu_geglu",
            "npu_geglu_grad",
            lambda m, form=form, left=left: {"self": m.normal(3, 8), "approximate": form, "activate_left": left},
            ("self",),
            lambda a, r, g: {"grad_output": g[0], "gelu": r[1].detach(), **a},
            label=f"{form}-{left}",
        )
        for form in (0, 1)
        for left in (False, True)
    ),
    *(
        Pair(
            "npu_rms_norm",
            "npu_rms_norm_backward",
            lambda m, gamma=gamma: {"self": m.normal(2, 3, 4), "gamma": m.normal(*gamma), "epsilon": 1e-3},
            ("self", "gamma"),
            lambda a, r, g: {"dy": g[0], "self": a["self"], "gamma": a["gamma"], "rstd": r[1].detach()},
            label=f"gamma{gamma}",
        )
        for gamma in ((4,), (3, 4), (2, 3, 4))
    ),
    *(
        Pair(
            "npu_group_norm_swish",
            "npu_group_norm_swish_grad",
            lambda m, shape=shape: {
                "input": m.normal(*shape),
                "num_groups": 2,
                "weight": m.normal(4),
                "bias": m.normal(4),
                "swish_scale": 0.7,
            },
            ("input", "weight", "bias"),
            lambda a, r, g: {
                "grad": g[0],
                **a,
                "mean": r[1].detach(),
                "rstd": r[2].detach(),
                "grad_input_mask": (True, True, True),
            },
            label=f"{len(shape)}d",
        )
        for shape in ((3, 4), (2, 4, 3), (2, 4, 3, 2, 2))
    ),
    _rotary("half", (1, 3, 1, 8), (1, 3, 1, 8)),
    _rotary("interleave", (2, 1, 1, 8), (1, 3, 4, 8)),
    _rotary("quarter", (8,), (1, 1, 1, 8)),
    _rotary("interleave-half", (2, 3, 4, 8), (4, 8)),
    _rotary("half", (5, 1, 6), (1, 1, 6), x=(5, 2, 6)),
    Pair(
        "npu_scaled_masked_softmax",
        "npu_scaled_masked_softmax_backward",
        lambda m: {"x": m.normal(2, 3, 4, 5), "mask": m.flags(2, 1, 4, 5), "scale": 0.7},
        ("x",),
        lambda a, r, g: {
            "y_grad": g[0],
            "y": r[0].detach(),
            "mask": a["mask"],
            "scale": a["scale"],
            "fixed_triu_mask": False,
        },
    ),
    Pair(
        "npu_dropout_with_add_softmax",
        "npu_dropout_with_add_softmax_backward",
        lambda m: {"self": m.normal(2, 3, 4), "x1": m.normal(2, 3, 4), "alpha": 0.7, "prob": 0.0, "dim": -1},
        ("self",),
        lambda a, r, g: {
            "grad": g[0],
            "mask": r[0],
            "softmax_out": r[1].detach(),
            "alpha": a["alpha"],
            "prob": a["prob"],
            "dim": a["dim"],
        },
        outputs=(2,),
    ),
    *(_loss(reduction, smoothing, 3) for reduction in ("mean", "sum", "none") for smoothing in (0.0, 0.2)),
    _loss("mean", 0.1, -100),
    Pair(
        "npu_softmax_cross_entropy_with_logits",
        "npu_softmax_cross_entropy_with_logits_backward",
        lambda m: {"self": m.normal(3, 4), "labels": torch.softmax(m.normal(3, 4), -1)},
        ("self",),
        lambda a, r, g: {"grad": g[0], **a},
    ),
    Pair(
        "npu_linear",
        "npu_linear_backward",
        lambda m: {"input": m.normal(3, 4), "weight": m.normal(5, 4)},
        ("input", "weight"),
        lambda a, r, g: {"grad": g[0], **a},
    ),
    *(_matmul_like(shapes) for shapes in _SHAPES),
    *(_matmul_like_second(shapes) for shapes in _SHAPES),
    Pair(
        "npu_conv2d",
        "npu_conv2d_backward",
        lambda m: {
            "input": m.normal(2, 4, 5, 6),
            "weight": m.normal(6, 2, 3, 2),
            "bias": m.normal(6),
            "stride": (1, 2),
            "padding": (1, 0),
            "dilation": (1, 2),
            "groups": 2,
        },
        ("input", "weight", "bias"),
        lambda a, r, g: {
            "grad_output": g[0],
            "output_mask": (True, True, True),
            **{name: value for name, value in a.items() if name != "bias"},
        },
    ),
    *(
        Pair(
            "npu_confusion_transpose",
            "npu_confusion_transpose_backward",
            lambda m, perm=perm, shape=shape, first=first: {
                "self": m.normal(2, 3, 4),
                "perm": perm,
                "shape": shape,
                "transpose_first": first,
            },
            ("self",),
            lambda a, r, g: {
                "grad": g[0],
                "perm": a["perm"],
                "shape": tuple(a["self"].shape),
                "transpose_first": not a["transpose_first"],
            },
            label=f"{first}-{perm}",
        )
        for perm, shape, first in (
            ((1, 2, 0), (4, 6), True),
            ((2, 0, 1), (3, 2, 4), False),
            ((3, 0, 2, 1), (1, 6, 2, 2), False),
        )
    ),
    *(
        Pair(
            f"npu_{name}",
            f"npu_{name}_backward",
            lambda m, keep=keep: {"self": m.normal(3, 4), "dim": 1, "keepdim": keep},
            ("self",),
            lambda a, r, g: {
                "grad": g[0],
                "dim": a["dim"],
                "indices": r[1],
                "sizes": tuple(a["self"].shape),
                "keepdim": a["keepdim"],
            },
            label=str(keep),
        )
        for name in ("max", "min")
        for keep in (False, True)
    ),
    *(
        Pair(
            "npu_moe_token_permute",
            backward,
            lambda m, count=count: {"tokens": m.normal(4, 3), "indices": m.below(3, 4, 2), "num_out_tokens": count},
            ("tokens",),
            lambda a, r, g, second=second: (
                {
                    "grad_permuted_tokens": g[0],
                    "sorted_indices": r[1],
                    "tokens_size_0": 4,
                    "tokens_dtype": torch.float64,
                    "num_topK": 2,
                }
                if second
                else {
                    "tokens": a["tokens"],
                    "grad_permuted_tokens": g[0],
                    "indices": a["indices"],
                    "sorted_indices": r[1],
                }
            ),
            label=f"{count}",
        )
        for backward, second in (("npu_moe_token_permute_grad", False), ("npu_moe_token_permute_grad_v2", True))
        for count in (None, 6, -1)
    ),
    *(
        Pair(
            "npu_moe_token_unpermute",
            "npu_moe_token_unpermute_grad",
            lambda m, rows=rows: {
                "permuted_tokens": m.normal(rows, 3),
                "sorted_indices": m.order(8),
                "probs": m.positive(4, 2),
            },
            ("permuted_tokens", "probs"),
            lambda a, r, g: {"grad_unpermuted_tokens": g[0], **a},
            label=f"{rows}rows",
        )
        for rows in (8, 6)
    ),
    Pair(
        "npu_moe_token_unpermute",
        "npu_moe_token_unpermute_grad_v2",
        lambda m: {"permuted_tokens": m.normal(8, 3), "sorted_indices": m.order(8), "probs": m.positive(4, 2)},
        ("permuted_tokens", "probs"),
        lambda a, r, g: {
            "grad_unpermuted_tokens": g[0],
            "permuted_tokens_size_0": 8,
            "permuted_tokens_dtype": torch.float64,
            **a,
        },
    ),
    Pair(
        "npu_moe_token_unpermute",
        "npu_moe_token_unpermute_grad",
        lambda m: {
            "permuted_tokens": m.normal(6, 3),
            "sorted_indices": torch.tensor([0, 1, 3, 1, 2, 0]),
            "probs": m.positive(6),
            "padded_mode": True,
            "restore_shape": (4, 3),
        },
        ("permuted_tokens", "probs"),
        lambda a, r, g: {"grad_unpermuted_tokens": g[0], **a},
        label="padded",
    ),
    *(
        Pair(
            "npu_moe_token_permute_with_routing_map",
            "npu_moe_token_permute_with_routing_map_grad",
            lambda m, pad=pad: {
                "tokens": m.normal(4, 3),
                "routing_map": _EVEN_MAP,
                "probs": m.positive(4, 3),
                "num_out_tokens": 6 if pad else 8,
                "drop_and_pad": pad,
            },
            ("tokens", "probs"),
            lambda a, r, g: {
                "permuted_token_out_grad": g[0],
                "probs_grad": g[1],
                "sorted_indices": r[2],
                "routing_map": a["routing_map"],
                "experts_num": 3,
                "tokens_num": 4,
                "drop_and_pad": a["drop_and_pad"],
            },
            outputs=(0, 1),
            label=f"pad-{pad}",
        )
        for pad in (False, True)
    ),
    Pair(
        "npu_moe_token_unpermute_with_routing_map",
        "npu_moe_token_unpermute_with_routing_map_grad",
        lambda m: {
            "permuted_tokens": m.normal(8, 3),
            "sorted_indices": m.order(8),
            "restore_shape": (4, 3),
            "probs": m.positive(4, 3),
            "routing_map": _EVEN_MAP,
        },
        ("permuted_tokens", "probs"),
        lambda a, r, g: {
            "unpermuted_tokens_grad": g[0],
            "out_index": a["sorted_indices"],
            "permuted_token_id": a["sorted_indices"],
            "drop_and_pad": False,
            **{name: value for name, value in a.items() if name != "sorted_indices"},
        },
    ),
    Pair(
        "npu_moe_token_unpermute_with_routing_map",
        "npu_moe_token_unpermute_with_routing_map_grad",
        lambda m: {
            "permuted_tokens": m.normal(6, 3),
            "sorted_indices": torch.tensor([0, 1, 3, 1, 2, 0]),
            "restore_shape": (4, 3),
            "probs": m.positive(4, 3),
            "routing_map": _EVEN_MAP,
            "drop_and_pad": True,
        },
        ("permuted_tokens", "probs"),
        lambda a, r, g: {
            "unpermuted_tokens_grad": g[0],
            "out_index": torch.argsort(a["sorted_indices"], stable=True),
            "permuted_token_id": torch.sort(a["sorted_indices"], stable=True).values,
            **{name: value for name, value in a.items() if name != "sorted_indices"},
        },
        label="pad",
    ),
)


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
        "matmul_backward",  # of torch.matmul: test_fused_matmuls.py
        "npu_dtype_cast_backward",  # a cast: test_fused_movement.py
        "npu_fusion_attention_grad",  # test_fused_attention_gradients.py
        "npu_fusion_attention_grad_v2",
        "npu_fusion_attention_grad_v3",
    }


def test_backward_operators_name_a_registered_forward() -> None:
    for name in fused_ops.names():
        forward = fused_ops.reference(name).backward_of
        assert forward is None or forward == "matmul" or forward in fused_ops.names()

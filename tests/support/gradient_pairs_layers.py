"""Forward and backward: activations, gated units, norms, rotary embedding, softmax, losses."""

from __future__ import annotations

import torch
from gradient_pairs import Pair


def _rotary(mode: str, r1: tuple[int, ...], r2: tuple[int, ...], x: tuple[int, ...] = (2, 3, 4, 8)) -> Pair:
    return Pair(
        "npu_rotary_mul",
        "npu_rotary_mul_backward",
        lambda m: {"self": m.normal(*x), "r1": m.normal(*r1), "r2": m.normal(*r2), "rotary_mode": mode},
        ("self", "r1", "r2"),
        lambda a, r, g: {"grad": g[0], **a},
        label=f"{mode}-{len(x)}d-{r1}-{r2}",
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


PAIRS: tuple[Pair, ...] = (
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
)

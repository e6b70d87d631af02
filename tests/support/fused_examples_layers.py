"""Examples: activations, gated units, norms, rotary embedding, softmax, losses, optimisers."""

from __future__ import annotations

from typing import Any

import torch
from fused_make import F32, FLOAT, U8, Example, Make


def _adam(m: Make, **more: Any) -> dict[str, Any]:
    state = {"grad": m.normal(3, 4), "var": m.normal(3, 4), "m": m.normal(3, 4), "v": m.positive(3, 4)}
    rates = {"beta1_power": 0.9, "beta2_power": 0.999, "lr": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
    return {**rates, **state, **more}


_ADAM_OUT = (((3, 4), FLOAT),) * 3

EXAMPLES: tuple[Example, ...] = (
    Example("fast_gelu", lambda m: {"self": m.normal(2, 3)}, (((2, 3), FLOAT),)),
    Example("npu_fast_gelu", lambda m: {"self": m.normal(2, 3)}, (((2, 3), FLOAT),)),
    Example("npu_fast_gelu_backward", lambda m: {"grad": m.normal(2, 3), "self": m.normal(2, 3)}, (((2, 3), FLOAT),)),
    Example("npu_mish", lambda m: {"self": m.normal(2, 3)}, (((2, 3), FLOAT),)),
    Example("npu_mish_backward", lambda m: {"grad": m.normal(2, 3), "input": m.normal(2, 3)}, (((2, 3), FLOAT),)),
    Example("npu_gelu", lambda m: {"self": m.normal(2, 3), "approximate": "tanh"}, (((2, 3), FLOAT),)),
    Example(
        "npu_gelu_backward",
        lambda m: {"grad_output": m.normal(2, 3), "self": m.normal(2, 3), "approximate": "none"},
        (((2, 3), FLOAT),),
    ),
    Example("npu_silu", lambda m: {"self": m.normal(2, 3)}, (((2, 3), FLOAT),)),
    Example("npu_silu_", lambda m: {"self": m.normal(2, 3)}, (((2, 3), FLOAT),)),
    Example(
        "npu_silu_backward",
        lambda m: {"grad_output": m.normal(2, 3), "x0": m.normal(2, 3), "x1": m.normal(2, 3)},
        (((2, 3), FLOAT),),
    ),
    Example("npu_swiglu", lambda m: {"self": m.normal(4, 6), "dim": 0}, (((2, 6), FLOAT),)),
    Example(
        "npu_swiglu_backward",
        lambda m: {"grad_output": m.normal(2, 6), "self": m.normal(4, 6), "dim": 0},
        (((4, 6), FLOAT),),
    ),
    Example("npu_gelu_mul", lambda m: {"input": m.normal(3, 8), "approximate": "tanh"}, (((3, 4), FLOAT),)),
    Example(
        "npu_geglu",
        lambda m: {"self": m.normal(3, 8), "dim": 1, "approximate": 0, "activate_left": True},
        (((3, 4), FLOAT), ((3, 4), FLOAT)),
    ),
    Example(
        "npu_geglu_grad",
        lambda m: {"grad_output": m.normal(3, 4), "self": m.normal(3, 8), "gelu": m.normal(3, 4), "dim": 1},
        (((3, 8), FLOAT),),
    ),
    Example(
        "npu_clipped_swiglu",
        lambda m: {
            "x": m.normal(4, 6),
            "group_index": torch.tensor([1, 2]),
            "dim": -1,
            "alpha": 1.5,
            "limit": 0.5,
            "bias": 0.25,
            "interleaved": False,
        },
        (((4, 3), FLOAT),),
    ),
    Example(
        "npu_layer_norm_eval",
        lambda m: {
            "input": m.normal(2, 3, 4),
            "normalized_shape": (3, 4),
            "weight": m.normal(3, 4),
            "bias": m.normal(3, 4),
            "eps": 1e-3,
        },
        (((2, 3, 4), FLOAT),),
    ),
    Example(
        "npu_rms_norm",
        lambda m: {"self": m.normal(2, 3, 4), "gamma": m.normal(3, 4), "epsilon": 1e-3},
        (((2, 3, 4), FLOAT), ((2, 1, 1), F32)),
    ),
    Example(
        "npu_rms_norm_backward",
        lambda m: {
            "dy": m.normal(2, 3, 4),
            "self": m.normal(2, 3, 4),
            "gamma": m.normal(4),
            "rstd": m.positive(2, 3, 1, dtype=F32),
        },
        (((2, 3, 4), FLOAT), ((4,), F32)),
    ),
    Example(
        "npu_add_rms_norm",
        lambda m: {"x1": m.normal(2, 3, 4), "x2": m.normal(2, 3, 4), "gamma": m.normal(4), "epsilon": 1e-3},
        (((2, 3, 4), FLOAT), ((2, 3, 1), F32), ((2, 3, 4), FLOAT)),
    ),
    Example(
        "npu_gemma_rms_norm",
        lambda m: {"self": m.normal(2, 3, 4), "gamma": m.normal(4), "epsilon": 1e-3},
        (((2, 3, 4), FLOAT), ((2, 3, 1), F32)),
    ),
    Example(
        "npu_group_norm_silu",
        lambda m: {"input": m.normal(2, 4, 3), "weight": m.normal(4), "bias": m.normal(4), "group": 2, "eps": 1e-3},
        (((2, 4, 3), FLOAT), ((2, 2), FLOAT), ((2, 2), FLOAT)),
    ),
    Example(
        "npu_group_norm_swish",
        lambda m: {
            "input": m.normal(2, 4, 3),
            "num_groups": 2,
            "weight": m.normal(4),
            "bias": m.normal(4),
            "eps": 1e-3,
            "swish_scale": 0.5,
        },
        (((2, 4, 3), FLOAT), ((2, 2), FLOAT), ((2, 2), FLOAT)),
    ),
    Example(
        "npu_group_norm_swish_grad",
        lambda m: {
            "grad": m.normal(2, 4, 3),
            "input": m.normal(2, 4, 3),
            "num_groups": 2,
            "weight": m.normal(4),
            "bias": m.normal(4),
            "mean": m.normal(2, 2),
            "rstd": m.positive(2, 2),
            "grad_input_mask": (True, True, True),
            "swish_scale": 0.5,
        },
        (((2, 4, 3), FLOAT), ((4,), FLOAT), ((4,), FLOAT)),
    ),
    Example(
        "npu_rotary_mul",
        lambda m: {
            "self": m.normal(2, 3, 4, 8),
            "r1": m.normal(1, 3, 1, 8),
            "r2": m.normal(1, 3, 1, 8),
            "rotary_mode": "interleave",
        },
        (((2, 3, 4, 8), FLOAT),),
    ),
    Example(
        "npu_rotary_mul_backward",
        lambda m: {
            "grad": m.normal(2, 3, 4, 8),
            "self": m.normal(2, 3, 4, 8),
            "r1": m.normal(1, 3, 1, 8).requires_grad_(),
            "r2": m.normal(1, 3, 1, 8),
            "rotary_mode": "quarter",
        },
        (((2, 3, 4, 8), FLOAT), ((1, 3, 1, 8), FLOAT), ((1, 3, 1, 8), FLOAT)),
    ),
    Example(
        "npu_apply_rotary_pos_emb",
        lambda m: {
            "query": m.normal(2, 3, 4, 8),
            "key": m.normal(2, 3, 1, 8),
            "cos": m.normal(2, 3, 1, 6),
            "sin": m.normal(2, 3, 1, 6),
            "layout": "BSND",
            "rotary_mode": "half",
        },
        (((2, 3, 4, 8), FLOAT), ((2, 3, 1, 8), FLOAT)),
    ),
    Example(
        "npu_mrope",
        lambda m: {
            "positions": m.below(7, 3, 5),
            "query": m.normal(5, 16),
            "key": m.normal(5, 8),
            "cos_sin_cache": m.normal(7, 6),
            "head_size": 8,
            "mrope_section": (1, 1, 1),
            "rotary_mode": "interleave",
            "cache_mode": "default",
        },
        (((5, 16), FLOAT), ((5, 8), FLOAT)),
    ),
    Example(
        "npu_scaled_masked_softmax",
        lambda m: {"x": m.normal(2, 3, 4, 5), "mask": m.flags(2, 1, 4, 5), "scale": 0.5, "fixed_triu_mask": False},
        (((2, 3, 4, 5), FLOAT),),
    ),
    Example(
        "npu_scaled_masked_softmax_backward",
        lambda m: {
            "y_grad": m.normal(2, 3, 4, 5),
            "y": m.normal(2, 3, 4, 5),
            "mask": m.flags(2, 1, 4, 5),
            "scale": 0.5,
            "fixed_triu_mask": False,
        },
        (((2, 3, 4, 5), FLOAT),),
    ),
    Example(
        "npu_dropout_with_add_softmax",
        lambda m: {"self": m.normal(2, 3, 4, 5), "x1": m.normal(2, 3, 4, 5), "alpha": 0.5, "prob": 0.0, "dim": -1},
        (((128,), U8), ((2, 3, 4, 5), FLOAT), ((2, 3, 4, 5), FLOAT)),
    ),
    Example(
        "npu_dropout_with_add_softmax_backward",
        lambda m: {
            "grad": m.normal(2, 3, 4, 5),
            "mask": m.below(2, 128, dtype=U8),
            "softmax_out": m.normal(2, 3, 4, 5),
            "alpha": 0.5,
            "prob": 0.25,
            "dim": -1,
        },
        (((2, 3, 4, 5), FLOAT), ((2, 3, 4, 5), FLOAT)),
    ),
    Example(
        "npu_cross_entropy_loss",
        lambda m: {
            "input": m.normal(4, 5),
            "target": torch.tensor([0, 1, 2, 1]),
            "weight": m.positive(5, dtype=F32),
            "reduction": "none",
            "ignore_index": 1,
            "label_smoothing": 0.1,
        },
        (((4,), FLOAT), ((4, 5), FLOAT), ((0,), FLOAT), ((0,), FLOAT)),
    ),
    Example(
        "npu_cross_entropy_loss_backward",
        lambda m: {
            "grad_loss": m.normal(1),
            "log_prob": -m.positive(4, 5),
            "target": torch.tensor([0, 1, 2, 1]),
            "weight": m.positive(5, dtype=F32),
            "reduction": "mean",
            "ignore_index": 1,
            "label_smoothing": 0.1,
        },
        (((4, 5), FLOAT),),
    ),
    Example(
        "npu_softmax_cross_entropy_with_logits",
        lambda m: {"self": m.normal(4, 5), "labels": m.positive(4, 5)},
        (((4,), FLOAT),),
    ),
    Example(
        "npu_softmax_cross_entropy_with_logits_backward",
        lambda m: {"grad": m.normal(4), "self": m.normal(4, 5), "labels": m.positive(4, 5)},
        (((4, 5), FLOAT),),
    ),
    *(
        Example(name, lambda m: _adam(m, use_locking=None, use_nesterov=True), _ADAM_OUT)
        for name in ("npu_apply_adam", "npu_apply_adam_out")
    ),
    *(
        Example(
            name,
            lambda m: _adam(m, weight_decay=0.1, max_grad_norm=m.positive(3, 4), amsgrad=True, maximize=True),
            _ADAM_OUT,
        )
        for name in ("npu_apply_adam_w", "npu_apply_adam_w_out")
    ),
)

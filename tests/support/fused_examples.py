"""One legal call of every fused operator with a reference, by schema names, and what it must return.

An output is (shape, dtype); FLOAT stands for the dtype that the example was built with, None for an undefined output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

FLOAT = "float"
F32, I32, I64, U8 = torch.float32, torch.int32, torch.int64, torch.uint8


class Make:
    """Tensors of one dtype from one seed, so that an example can be built again, equal."""

    def __init__(self, dtype: torch.dtype = torch.float32, seed: int = 0) -> None:
        self.dtype = dtype
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(dtype or self.dtype)

    def positive(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return self.normal(*shape, dtype=dtype).abs() + 0.5

    def below(self, high: int, *shape: int, dtype: torch.dtype = I64) -> Tensor:
        return torch.randint(0, high, shape, generator=self.generator).to(dtype)

    def flags(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator) < 0.3

    def order(self, count: int, dtype: torch.dtype = I32) -> Tensor:
        return torch.randperm(count, generator=self.generator).to(dtype)


@dataclass(frozen=True)
class Example:
    """`make` gives the arguments by name; `outputs` what comes back, a list where the operator returns one."""

    op: str
    make: Callable[[Make], dict[str, Any]]
    outputs: tuple[tuple[tuple[int, ...], Any] | None, ...]

    def arguments(self, dtype: torch.dtype = torch.float32, seed: int = 0) -> dict[str, Any]:
        return self.make(Make(dtype, seed))


def _adam(m: Make, **more: Any) -> dict[str, Any]:
    state = {"grad": m.normal(3, 4), "var": m.normal(3, 4), "m": m.normal(3, 4), "v": m.positive(3, 4)}
    rates = {"beta1_power": 0.9, "beta2_power": 0.999, "lr": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
    return {**rates, **state, **more}


def _attention(m: Make, **more: Any) -> dict[str, Any]:
    tensors = {"query": m.normal(2, 4, 3, 8), "key": m.normal(2, 2, 5, 8), "value": m.normal(2, 2, 5, 6)}
    return {**tensors, "head_num": 4, "input_layout": "BNSD", **more}


def _attention_grad(m: Make, **more: Any) -> dict[str, Any]:
    return {**_attention(m), "dy": m.normal(2, 4, 3, 6), "scale_value": 0.3, **more}


def _causal() -> Tensor:
    return torch.ones(2048, 2048, dtype=torch.bool).triu(1)


def _three_heads(m: Make, **more: Any) -> dict[str, Any]:
    """A TND call of version 3: sequences of 2 and 3 query rows, 1 and 4 columns."""
    ends = {"actual_seq_qlen": torch.tensor([2, 5]), "actual_seq_kvlen": torch.tensor([1, 5])}
    tensors = {"query": m.normal(5, 4, 8), "key": m.normal(5, 2, 8), "value": m.normal(5, 2, 6)}
    return {**tensors, "head_num": 4, "input_layout": "TND", **ends, **more}


_STATISTICS = ((2, 4, 3, 8), F32)
_ADAM_OUT = (((3, 4), FLOAT),) * 3
_MAP = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=torch.bool)
_CONV = {"stride": (1, 2), "padding": (1, 0), "dilation": (1, 1), "groups": 2}

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
    Example(
        "npu_linear",
        lambda m: {"input": m.normal(3, 4), "weight": m.normal(5, 4), "bias": m.normal(5)},
        (((3, 5), FLOAT),),
    ),
    Example(
        "npu_linear_backward",
        lambda m: {"grad": m.normal(3, 5), "input": m.normal(3, 4), "weight": m.normal(5, 4)},
        (((3, 4), FLOAT), ((5, 4), FLOAT)),
    ),
    Example(
        "matmul_backward",
        lambda m: {
            "grad": m.normal(2, 3, 5),
            "self": m.normal(2, 3, 4),
            "other": m.normal(4, 5),
            "mask": (True, True),
        },
        (((2, 3, 4), FLOAT), ((4, 5), FLOAT)),
    ),
    Example(
        "npu_bmmV2",
        lambda m: {"self": m.normal(2, 3, 4), "mat2": m.normal(2, 4, 5), "output_sizes": (1, 3, 5)},
        (((1, 3, 5), FLOAT),),
    ),
    Example(
        "npu_bmm_v2_mat1_backward",
        lambda m: {"grad": m.normal(2, 3, 5), "mat1": m.normal(3, 4), "mat2": m.normal(2, 4, 5), "size": (3, 4)},
        (((3, 4), FLOAT),),
    ),
    Example(
        "npu_bmm_v2_mat2_backward",
        lambda m: {"grad": m.normal(2, 3, 5), "mat1": m.normal(3, 4), "mat2": m.normal(2, 4, 5), "size": (2, 4, 5)},
        (((2, 4, 5), FLOAT),),
    ),
    Example(
        "npu_transpose_batchmatmul",
        lambda m: {
            "input": m.normal(3, 2, 4),
            "weight": m.normal(2, 4, 6),
            "perm_x1": (1, 0, 2),
            "perm_x2": (0, 1, 2),
            "perm_y": (1, 0, 2),
            "batch_split_factor": 2,
        },
        (((2, 3, 6), FLOAT),),
    ),
    Example(
        "npu_grouped_matmul",
        lambda m: {
            "x": [m.normal(5, 4)],
            "weight": [m.normal(2, 4, 3)],
            "bias": [m.normal(2, 3)],
            "group_list": torch.tensor([2, 5]),
            "split_item": 3,
            "group_type": 0,
            "group_list_type": 0,
        },
        (((5, 3), FLOAT),),
    ),
    Example(
        "npu_conv2d",
        lambda m: {"input": m.normal(2, 4, 5, 6), "weight": m.normal(6, 2, 3, 2), "bias": m.normal(6), **_CONV},
        (((2, 6, 5, 3), FLOAT),),
    ),
    Example(
        "npu_conv2d_backward",
        lambda m: {
            "input": m.normal(2, 4, 5, 6),
            "grad_output": m.normal(2, 6, 5, 3),
            "weight": m.normal(6, 2, 3, 2),
            **_CONV,
            "output_mask": (True, True, True),
        },
        (((2, 4, 5, 6), FLOAT), ((6, 2, 3, 2), FLOAT), ((6,), FLOAT)),
    ),
    Example(
        "npu_confusion_transpose",
        lambda m: {"self": m.normal(2, 3, 4), "perm": (0, 2, 1), "shape": (2, 12), "transpose_first": True},
        (((2, 12), FLOAT),),
    ),
    Example(
        "npu_confusion_transpose_backward",
        lambda m: {"grad": m.normal(2, 12), "perm": (0, 2, 1), "shape": (2, 3, 4), "transpose_first": False},
        (((2, 3, 4), FLOAT),),
    ),
    Example(
        "npu_transpose",
        lambda m: {"self": m.normal(2, 3, 4), "perm": (2, 0, 1), "require_contiguous": True},
        (((4, 2, 3), FLOAT),),
    ),
    Example("npu_pad", lambda m: {"input": m.normal(2, 3), "paddings": (1, 0, 2, 1)}, (((3, 6), FLOAT),)),
    Example(
        "npu_one_hot",
        lambda m: {"self": m.below(4, 2, 3), "num_classes": -1, "depth": 4, "on_value": 2, "off_value": -1},
        (((2, 3, 4), F32),),
    ),
    Example("npu_dtype_cast", lambda m: {"self": m.normal(2, 3), "dtype": torch.float16}, (((2, 3), torch.float16),)),
    Example("_npu_dtype_cast", lambda m: {"self": m.normal(2, 3), "dtype": torch.int32}, (((2, 3), I32),)),
    Example(
        "npu_dtype_cast_backward",
        lambda m: {"grad": m.normal(2, 3), "dtype": torch.bfloat16},
        (((2, 3), torch.bfloat16),),
    ),
    Example("npu_format_cast", lambda m: {"self": m.normal(2, 3), "acl_format": 29}, (((2, 3), FLOAT),)),
    Example("npu_sort_v2", lambda m: {"self": m.normal(3, 4), "dim": 0, "descending": True}, (((3, 4), FLOAT),)),
    Example("npu_max", lambda m: {"self": m.normal(3, 4), "dim": 1, "keepdim": True}, (((3, 1), FLOAT), ((3, 1), I32))),
    Example("npu_min", lambda m: {"self": m.normal(3, 4), "dim": 0}, (((4,), FLOAT), ((4,), I32))),
    Example(
        "npu_max_backward",
        lambda m: {
            "grad": m.normal(3),
            "dim": 1,
            "indices": m.below(4, 3, dtype=I32),
            "sizes": (3, 4),
            "keepdim": False,
        },
        (((3, 4), FLOAT),),
    ),
    Example(
        "npu_min_backward",
        lambda m: {
            "grad": m.normal(1, 4),
            "dim": 0,
            "indices": m.below(3, 1, 4, dtype=I32),
            "sizes": (3, 4),
            "keepdim": True,
        },
        (((3, 4), FLOAT),),
    ),
    Example(
        "npu_moe_gating_top_k_softmax",
        lambda m: {"x": m.normal(2, 3, 5), "finished": m.flags(2, 3), "k": 2},
        (((2, 3, 2), FLOAT), ((2, 3, 2), I32), ((2, 3, 2), I32)),
    ),
    Example(
        "npu_moe_gating_top_k",
        lambda m: {
            "x": m.normal(3, 12),
            "k": 3,
            "bias": m.normal(12),
            "k_group": 2,
            "group_count": 4,
            "group_select_mode": 1,
            "norm_type": 1,
            "out_flag": True,
            "routed_scaling_factor": 2.0,
            "eps": 1e-6,
        },
        (((3, 3), FLOAT), ((3, 3), I32), ((3, 12), F32)),
    ),
    Example(
        "npu_moe_token_permute",
        lambda m: {"tokens": m.normal(4, 3), "indices": m.below(3, 4, 2), "num_out_tokens": 6},
        (((6, 3), FLOAT), ((8,), I32)),
    ),
    Example(
        "npu_moe_token_permute_grad",
        lambda m: {
            "tokens": m.normal(4, 3),
            "grad_permuted_tokens": m.normal(6, 3),
            "indices": m.below(3, 4, 2),
            "sorted_indices": m.order(8),
        },
        (((4, 3), FLOAT),),
    ),
    Example(
        "npu_moe_token_permute_grad_v2",
        lambda m: {
            "grad_permuted_tokens": m.normal(6, 3),
            "sorted_indices": m.order(8),
            "tokens_size_0": 4,
            "tokens_dtype": m.dtype,
            "num_topK": 2,
        },
        (((4, 3), FLOAT),),
    ),
    Example(
        "npu_moe_token_unpermute",
        lambda m: {"permuted_tokens": m.normal(6, 3), "sorted_indices": m.order(8), "probs": m.positive(4, 2)},
        (((4, 3), FLOAT),),
    ),
    Example(
        "npu_moe_token_unpermute_grad",
        lambda m: {
            "permuted_tokens": m.normal(6, 3),
            "grad_unpermuted_tokens": m.normal(4, 3),
            "sorted_indices": m.order(8),
            "probs": m.positive(4, 2),
        },
        (((6, 3), FLOAT), ((4, 2), FLOAT)),
    ),
    Example(
        "npu_moe_token_unpermute_grad_v2",
        lambda m: {
            "grad_unpermuted_tokens": m.normal(4, 3),
            "sorted_indices": m.order(8),
            "permuted_tokens_size_0": 6,
            "permuted_tokens_dtype": m.dtype,
            "probs": m.positive(4, 2),
            "permuted_tokens": m.normal(6, 3),
        },
        (((6, 3), FLOAT), ((4, 2), FLOAT)),
    ),
    Example(
        "npu_moe_token_permute_with_routing_map",
        lambda m: {
            "tokens": m.normal(4, 3),
            "routing_map": _MAP,
            "probs": m.positive(4, 3),
            "num_out_tokens": 8,
            "drop_and_pad": False,
        },
        (((8, 3), FLOAT), ((8,), FLOAT), ((8,), I32)),
    ),
    Example(
        "npu_moe_token_permute_with_routing_map_grad",
        lambda m: {
            "permuted_token_out_grad": m.normal(8, 3),
            "probs_grad": m.normal(8),
            "sorted_indices": m.order(8),
            "routing_map": _MAP,
            "experts_num": 3,
            "tokens_num": 4,
            "drop_and_pad": False,
        },
        (((4, 3), FLOAT), ((4, 3), FLOAT)),
    ),
    Example(
        "npu_moe_token_unpermute_with_routing_map",
        lambda m: {
            "permuted_tokens": m.normal(8, 3),
            "sorted_indices": m.order(8),
            "restore_shape": (4, 3),
            "probs": m.positive(4, 3),
            "routing_map": _MAP,
            "drop_and_pad": False,
        },
        (((4, 3), FLOAT),),
    ),
    Example(
        "npu_moe_token_unpermute_with_routing_map_grad",
        lambda m: {
            "unpermuted_tokens_grad": m.normal(4, 3),
            "out_index": m.order(8),
            "permuted_token_id": m.order(8),
            "routing_map": _MAP,
            "permuted_tokens": m.normal(8, 3),
            "probs": m.positive(4, 3),
            "drop_and_pad": False,
            "restore_shape": (4, 3),
        },
        (((8, 3), FLOAT), ((4, 3), FLOAT)),
    ),
    Example(
        "npu_moe_init_routing",
        lambda m: {
            "x": m.normal(4, 3),
            "row_idx": torch.arange(8, dtype=I32).reshape(2, 4).t(),
            "expert_idx": m.below(3, 4, 2, dtype=I32),
            "active_num": 3,
        },
        (((6, 3), FLOAT), ((8,), I32), ((8,), I32)),
    ),
    Example(
        "npu_moe_finalize_routing",
        lambda m: {
            "expanded_permuted_rows": m.normal(8, 3),
            "skip1": m.normal(4, 3),
            "skip2": m.normal(4, 3),
            "bias": m.normal(5, 3),
            "scales": m.normal(4, 2),
            "expanded_src_to_dst_row": m.order(8),
            "export_for_source_row": m.below(5, 4, 2, dtype=I32),
            "drop_pad_mode": 2,
        },
        (((4, 3), FLOAT),),
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
    *(
        Example(
            name,
            lambda m: _attention(m, atten_mask=_causal(), scale=0.3, sparse_mode=3, sink=m.normal(4, dtype=F32)),
            (((2, 4, 3, 6), FLOAT), _STATISTICS, _STATISTICS, ((0,), FLOAT), int, int, int),
        )
        for name in ("npu_fusion_attention", "npu_fusion_attention_v2")
    ),
    Example(
        "npu_fusion_attention_v3",
        lambda m: _three_heads(m, scale=0.3),
        (((5, 4, 6), FLOAT), ((5, 4, 8), F32), ((5, 4, 8), F32), ((0,), FLOAT), ((1,), I64), ((1,), I64)),
    ),
    Example(
        "npu_fusion_attention_grad",
        lambda m: _attention_grad(m, pse=m.normal(1, 4, 3, 5), sink=m.normal(4, dtype=F32)),
        (
            ((2, 4, 3, 8), FLOAT),
            ((2, 2, 5, 8), FLOAT),
            ((2, 2, 5, 6), FLOAT),
            ((1, 4, 3, 5), FLOAT),
            ((4,), F32),
        ),
    ),
    Example(
        "npu_fusion_attention_grad_v2",
        lambda m: _attention_grad(m, query_rope=m.normal(2, 4, 3, 2), key_rope=m.normal(2, 2, 5, 2)),
        (
            ((2, 4, 3, 8), FLOAT),
            ((2, 2, 5, 8), FLOAT),
            ((2, 2, 5, 6), FLOAT),
            None,
            ((2, 4, 3, 2), FLOAT),
            ((2, 2, 5, 2), FLOAT),
            ((0,), F32),
        ),
    ),
    Example(
        "npu_fusion_attention_grad_v3",
        lambda m: {**_three_heads(m), "dy": m.normal(5, 4, 6), "scale_value": 0.3},
        (((5, 4, 8), FLOAT), ((5, 2, 8), FLOAT), ((5, 2, 6), FLOAT), None, ((0,), F32)),
    ),
)

BY_NAME = {example.op: example for example in EXAMPLES}

"""Examples: mixture of experts."""

from __future__ import annotations

import torch
from fused_make import F32, FLOAT, I32, Example

_MAP = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=torch.bool)

EXAMPLES: tuple[Example, ...] = (
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
)

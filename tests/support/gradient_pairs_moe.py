"""Forward and backward: mixture of experts."""

from __future__ import annotations

import torch
from gradient_pairs import Pair

_EVEN_MAP = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=torch.bool)

PAIRS: tuple[Pair, ...] = (
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

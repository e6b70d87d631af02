"""Examples: matrix products, convolution, moves, casts, ordering."""

from __future__ import annotations

import torch
from fused_make import F32, FLOAT, I32, Example

_CONV = {"stride": (1, 2), "padding": (1, 0), "dilation": (1, 1), "groups": 2}

EXAMPLES: tuple[Example, ...] = (
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
)

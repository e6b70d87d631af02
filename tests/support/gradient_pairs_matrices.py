"""Forward and backward: matrix products, convolution, moves, ordering."""

from __future__ import annotations

from gradient_pairs import Pair


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


_SHAPES = (((2, 3, 4), (2, 4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)))

PAIRS: tuple[Pair, ...] = (
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
)

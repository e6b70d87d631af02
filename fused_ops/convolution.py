"""Two-dimensional convolution and its gradients."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register


def _check_geometry(
    input: Tensor,
    weight: Tensor,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> None:
    check(input.dim() == 4, "input", input, "must be [N, C, H, W]")
    for name, values, least in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)):
        fits = len(values) in {1, 2} and all(value >= least for value in values)
        check(fits, name, values, f"must be one or two numbers not below {least}")
    channels = input.shape[1]
    check(groups > 0 and channels % groups == 0, "groups", groups, f"must divide the {channels} channels")
    fits = weight.dim() == 4 and weight.shape[1] * groups == channels and weight.shape[0] % groups == 0
    check(fits, "weight", weight, f"must be [out, {channels // groups}, kH, kW] with out a multiple of {groups}")


@register(
    "npu_conv2d(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int groups) "
    "-> Tensor",
    "npu_conv2d.out(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int "
    "groups, "
    "*, Tensor(a!) out) -> Tensor(a!)",
    source="op-plugin schemas and manual; the same function as torch.nn.functional.conv2d",
    standard="thousandth",
)
def conv2d(
    run: Precision,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Tensor:
    _check_geometry(input, weight, stride, padding, dilation, groups)
    y = F.conv2d(run.up(input), run.up(weight), run.up(bias), stride, padding, dilation, groups)
    return run.down(y, input.dtype)


@register(
    "npu_conv2d_backward(Tensor input, Tensor grad_output, Tensor weight, int[] stride, int[] padding, int[] dilation, "
    "int groups, bool[3] output_mask) -> (Tensor dinput, Tensor dweight, Tensor dbias)",
    source="op-plugin schema; the gradients of npu_conv2d, each only where output_mask asks for it",
    standard="benchmark",
    backward_of="npu_conv2d",
    uncompared_note="gradients that the mask does not ask for",
    uncompared=lambda bound: {
        index: "not asked for by output_mask" for index, wanted in enumerate(bound["output_mask"]) if not wanted
    },
)
def conv2d_backward(
    run: Precision,
    input: Tensor,
    grad_output: Tensor,
    weight: Tensor,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    output_mask: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    _check_geometry(input, weight, stride, padding, dilation, groups)
    x, w, dy = run.up(input), run.up(weight), run.up(grad_output)
    dinput, dweight, dbias = torch.ops.aten.convolution_backward(
        dy, x, w, [w.shape[0]], _pair(stride), _pair(padding), _pair(dilation), False, [0, 0], groups, list(output_mask)
    )
    return (
        run.down(dinput, input.dtype) if output_mask[0] else None,
        run.down(dweight, weight.dtype) if output_mask[1] else None,
        run.down(dbias, grad_output.dtype) if output_mask[2] else None,
    )


def _pair(values: tuple[int, ...]) -> list[int]:
    return [values[0], values[-1]]

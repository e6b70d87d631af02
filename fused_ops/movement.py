"""Operators that only move elements; results are fresh contiguous tensors, never views."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register


@register(
    "npu_confusion_transpose(Tensor self, int[] perm, int[] shape, bool transpose_first) -> Tensor",
    source="op-plugin schema and manual: permute then reshape, or reshape then permute",
    standard="binary consistency",
)
def confusion_transpose(
    run: Precision, self: Tensor, perm: tuple[int, ...], shape: tuple[int, ...], transpose_first: bool
) -> Tensor:
    if transpose_first:
        _check_permutation(perm, self.dim())
        return fresh(run, _reshape(self.permute(perm), shape))
    _check_permutation(perm, len(shape))
    return fresh(run, _reshape(self, shape).permute(perm))


@register(
    "npu_confusion_transpose_backward(Tensor grad, int[] perm, SymInt[] shape, bool transpose_first) -> Tensor",
    source="op-plugin schema and derivatives: shape is the forward input's, transpose_first the forward flag inverted",
    standard="binary consistency",
    backward_of="npu_confusion_transpose",
)
def confusion_transpose_backward(
    run: Precision, grad: Tensor, perm: tuple[int, ...], shape: tuple[int, ...], transpose_first: bool
) -> Tensor:
    inverse = tuple(perm.index(axis) for axis in range(len(perm))) if sorted(perm) == list(range(len(perm))) else perm
    if transpose_first:
        # The forward reshaped first, so its result has perm's rank.
        _check_permutation(perm, grad.dim())
        return fresh(run, _reshape(grad.permute(inverse), shape))
    _check_permutation(perm, len(shape))
    return fresh(run, _reshape(grad, tuple(shape[axis] for axis in perm)).permute(inverse))


def fresh(run: Precision, tensor: Tensor) -> Tensor:
    """A contiguous copy that shares no memory with the input."""
    return run.down(tensor, tensor.dtype).clone(memory_format=torch.contiguous_format)


def _reshape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    known = math.prod(size for size in shape if size != -1)
    fits = tensor.numel() % max(known, 1) == 0 if -1 in shape else known == tensor.numel()
    check(fits, "shape", shape, f"must hold the {tensor.numel()} elements of {tuple(tensor.shape)}")
    return tensor.reshape(shape)


def _check_permutation(perm: tuple[int, ...], rank: int) -> None:
    check(sorted(perm) == list(range(rank)), "perm", perm, f"must be a permutation of 0 … {rank - 1}")

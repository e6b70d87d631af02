"""Operators that only move elements; results are fresh contiguous tensors, never views."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .errors import UnsupportedArgument, check
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


@register(
    "npu_transpose(Tensor self, int[] perm, bool require_contiguous=True) -> Tensor",
    "npu_transpose.out(Tensor self, int[] perm, bool require_contiguous=True, *, Tensor(a!) out) -> Tensor(a!)",
    source="op-plugin schemas and manual: a permutation with a contiguous result",
    standard="binary consistency",
    inert=("require_contiguous",),
)
def transpose(run: Precision, self: Tensor, perm: tuple[int, ...]) -> Tensor:
    rank = self.dim()
    check(all(-rank <= axis < rank for axis in perm), "perm", perm, f"must be a permutation of 0 … {rank - 1}")
    _check_permutation(tuple(axis % rank for axis in perm), rank)
    return fresh(run, self.permute(perm))


@register(
    "npu_pad(Tensor input, int[] paddings) -> Tensor",
    source="op-plugin schema, manual and host code: zeros before and after, a pair per dimension, the first dimension "
    "first (torch.nn.functional.pad starts at the last); missing pairs are 0",
    standard="binary consistency",
)
def pad(run: Precision, input: Tensor, paddings: tuple[int, ...]) -> Tensor:
    fits = len(paddings) % 2 == 0 and len(paddings) <= 2 * input.dim() and all(size >= 0 for size in paddings)
    check(fits, "paddings", paddings, f"must be at most {input.dim()} pairs of numbers not below 0")
    pairs = [paddings[index : index + 2] for index in range(0, len(paddings), 2)]
    pairs += [(0, 0)] * (input.dim() - len(pairs))
    shape = [size + before + after for size, (before, after) in zip(input.shape, pairs, strict=True)]
    result = input.new_zeros(shape)
    inner = result
    for dim, (size, (before, _)) in enumerate(zip(input.shape, pairs, strict=True)):
        inner = inner.narrow(dim, before, size)
    inner.copy_(input)
    return run.down(result, input.dtype)


@register(
    "npu_one_hot(Tensor self, int num_classes=-1, int depth=1, Scalar on_value=1, Scalar off_value=0) -> Tensor",
    source="op-plugin schema, manual and host code: num_classes is the axis and the result is always float32 with "
    "depth "
    "as last dimension; an index outside [0, depth) marks nothing",
    standard="binary consistency",
)
def one_hot(run: Precision, self: Tensor, num_classes: int, depth: int, on_value: float, off_value: float) -> Tensor:
    check(depth > 0, "depth", depth, "must be positive")
    if num_classes not in {-1, self.dim()}:
        raise UnsupportedArgument("num_classes", num_classes, "only the last axis, -1, is implemented")
    marked = self.long().unsqueeze(-1) == torch.arange(depth, device=self.device)
    values = torch.full(marked.shape, float(off_value), dtype=torch.float32, device=self.device)
    return run.down(values.masked_fill(marked, float(on_value)), torch.float32)

"""One definition, two precisions: how an operator's definition raises its inputs and rounds its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor


@dataclass(frozen=True)
class Precision:
    """Golden computes in float64 and leaves results there; own dtype computes in at least float32 and rounds once."""

    golden: bool

    @overload
    def up(self, tensor: Tensor) -> Tensor: ...
    @overload
    def up(self, tensor: None) -> None: ...
    def up(self, tensor: Tensor | None) -> Tensor | None:
        """The tensor in the dtype to compute in; integers and booleans stay."""
        if tensor is None or not tensor.is_floating_point():
            return tensor
        return tensor.to(self.dtype(tensor.dtype))

    def dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype to compute in for inputs of `dtype`."""
        if self.golden or dtype == torch.float64:
            return torch.float64
        return torch.float32 if dtype.is_floating_point else dtype

    def down(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """The result in the operator's own output dtype; the golden run keeps its float64."""
        if self.golden and dtype.is_floating_point:
            return tensor.to(torch.float64)
        return tensor.to(dtype)


GOLDEN = Precision(golden=True)
OWN = Precision(golden=False)

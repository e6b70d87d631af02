"""References for the NPU's fused operators, forward and backward, with the official signatures.

    from fused_ops import reference
    op = reference("npu_rms_norm")
    y, rstd = op(x, gamma, epsilon=1e-6)      # own dtype, float32 accumulation, one rounding
    y, rstd = op.golden(x, gamma)             # float64

`register` adds a reference of one's own.
"""

from __future__ import annotations

from . import (  # noqa: F401  (imported for the references that they register)
    activations,
    attention_backward,
    attention_forward,
    casts,
    convolution,
    gated,
    group_norms,
    grouped_matmul,
    losses,
    matmuls,
    moe_gating,
    moe_permute,
    moe_routing,
    moe_routing_map,
    movement,
    norms,
    optimizers,
    ordering,
    rotary,
    rotary_embedding,
    softmaxes,
)
from .errors import InvalidArgument, UnknownFusedOp, UnsupportedArgument, check
from .operator import FusedOp
from .precision import Precision
from .registry import names, reference, register

__all__ = [
    "FusedOp",
    "InvalidArgument",
    "Precision",
    "UnknownFusedOp",
    "UnsupportedArgument",
    "check",
    "names",
    "reference",
    "register",
]

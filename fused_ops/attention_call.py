"""One call of the fused attention family: its options, checked, under one set of names for all versions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import UnsupportedArgument, check

LAYOUTS = ("BSH", "SBH", "BNSD", "BSND", "TND")
# Modes whose region follows from lengths and band alone; the given mask is a compressed pattern.
GEOMETRIC_MODES = frozenset({2, 3, 4, 6, 7, 8})
_MASK_RANKS = (2, 4)


@dataclass(frozen=True)
class AttentionCall:
    """Options of one call; `pre` and `next` bound the band, `q_ends` and `kv_ends` are cumulative lengths (TND)."""

    layout: str
    heads: int
    scale: float
    keep_prob: float
    pre: int
    next: int
    inner_precise: int
    prefix: tuple[int, ...]
    q_ends: tuple[int, ...]
    kv_ends: tuple[int, ...]
    sparse_mode: int
    softmax_layout: str
    pse: Tensor | None
    mask: Tensor | None
    sink: Tensor | None
    dropout: Tensor | None = None
    pse_type: int = 1
    q_start: int = 0
    kv_start: int = 0

    @property
    def drops(self) -> bool:
        """Whether a dropout mask that nobody captured decides the result."""
        return self.keep_prob < 1 and self.dropout is None

    @property
    def zeroes_empty_rows(self) -> bool:
        """Whether every fully masked row gives 0 instead of the mean of V.

        inner_precise 2 asks for it; where the mode's geometry shows such rows the device switches it on by itself.
        """
        return self.inner_precise == 2 or (self.mask is not None and self.sparse_mode in GEOMETRIC_MODES)

    def checked(self, names: tuple[str, str, str] = ("scale", "pre_tockens", "next_tockens")) -> AttentionCall:
        """Itself, after every rule that needs no tensor of the call."""
        check(self.heads > 0, "head_num", self.heads, "must be positive")
        check(self.layout in LAYOUTS, "input_layout", self.layout, f"must be one of {', '.join(LAYOUTS)}")
        check(0 < self.keep_prob <= 1, "keep_prob", self.keep_prob, "must lie in (0, 1]")
        check(self.softmax_layout in {"", "TND"}, "softmax_layout", self.softmax_layout, "must be '' or 'TND'")
        check(
            self.softmax_layout != "TND" or self.layout == "TND",
            "softmax_layout",
            self.softmax_layout,
            "'TND' needs input_layout 'TND'",
        )
        modes = {0, 1, 2, 3, 4, 6, 7, 8} if self.layout == "TND" else set(range(7))
        check(
            self.sparse_mode in modes,
            "sparse_mode",
            self.sparse_mode,
            f"must be one of {', '.join(map(str, sorted(modes)))} with layout {self.layout}",
        )
        check(self.pse_type in {0, 1, 2, 3}, "pse_type", self.pse_type, "must be 0, 1, 2 or 3")
        if self.layout == "TND":
            check(bool(self.q_ends), "actual_seq_qlen", self.q_ends, "is required with layout TND")
            check(
                len(self.kv_ends) == len(self.q_ends),
                "actual_seq_kvlen",
                self.kv_ends,
                f"must have as many entries as actual_seq_qlen, {len(self.q_ends)}",
            )
        if self.sparse_mode in {7, 8}:
            check(self.pse is None, "pse", self.pse, f"is not allowed with sparse_mode {self.sparse_mode}")
        self._check_mask(names)
        if self.sink is not None:
            check(tuple(self.sink.shape) == (self.heads,), "sink", self.sink, f"must have the shape [{self.heads}]")
        return self

    def _check_mask(self, names: tuple[str, str, str]) -> None:
        mask = self.mask
        if mask is None:
            return
        check(mask.dtype in {torch.bool, torch.uint8}, "atten_mask", mask, "must be bool or uint8, 1 where masked")
        check(
            mask.dim() in _MASK_RANKS,
            "atten_mask",
            mask,
            "must have the shape [S,S], [1,1,S,S], [B,1,S,S] or [B,N,S,S]",
        )
        check(self.sparse_mode != 6 or bool(self.prefix), "prefix", self.prefix, "is required with sparse_mode 6")
        if self.sparse_mode in {0, 4, 7, 8}:
            check(self.pre + self.next >= 0, names[1], self.pre, f"must not be below -{names[2]}: the band is empty")


def no_padding_mask(padding_mask: Tensor | None) -> None:
    """The argument is reserved: no release uses it."""
    if padding_mask is not None:
        raise UnsupportedArgument("padding_mask", "given", "reserved in every release; only None is implemented")


def ends_of(values: Tensor | tuple[int, ...] | None) -> tuple[int, ...]:
    """Cumulative lengths as plain integers; version 3 gives them as a tensor."""
    if values is None:
        return ()
    return tuple(int(value) for value in (values.tolist() if isinstance(values, Tensor) else values))

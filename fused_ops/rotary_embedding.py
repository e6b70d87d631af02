"""Rotary embedding of query and key together: npu_apply_rotary_pos_emb and npu_mrope."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import check
from .precision import Precision
from .registry import register
from .rotary import rotated

_RANKS = {"BSND": 4, "SBND": 4, "BNSD": 4, "TND": 3}


@register(
    "npu_apply_rotary_pos_emb(Tensor query, Tensor key, Tensor cos, Tensor sin, str layout='BSND', "
    "str rotary_mode='half') -> (Tensor query, Tensor key)",
    source="op-plugin schema, manual and host code: x·cos + rot(x)·sin on the first D of cos, the rest passes; the "
    "host "
    "code returns query and key themselves, updated in place, which the schema does not mark; the schema takes layout "
    "and rotary_mode by position, the manual by keyword only",
    writes={"query": 0, "key": 1},
)
def apply_rotary_pos_emb(
    run: Precision, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, layout: str, rotary_mode: str
) -> tuple[Tensor, Tensor]:
    check(layout in _RANKS, "layout", layout, f"must be one of {', '.join(_RANKS)}")
    modes = ("half", "interleave", "quarter")
    check(rotary_mode in modes, "rotary_mode", rotary_mode, f"must be one of {', '.join(modes)}")
    for name, tensor in (("query", query), ("key", key), ("cos", cos), ("sin", sin)):
        check(tensor.dim() == _RANKS[layout], name, tensor, f"must have {_RANKS[layout]} dimensions in layout {layout}")
    check(sin.shape == cos.shape, "sin", sin, f"must have cos's shape {tuple(cos.shape)}")
    return _turned(run, query, cos, sin, rotary_mode, "query"), _turned(run, key, cos, sin, rotary_mode, "key")


def _turned(run: Precision, x: Tensor, cos: Tensor, sin: Tensor, mode: str, name: str) -> Tensor:
    size = cos.shape[-1]
    fits = size <= x.shape[-1] and all(c in {1, full} for c, full in zip(cos.shape[:-1], x.shape[:-1], strict=True))
    check(fits, "cos", cos, f"must broadcast to {name}'s shape {tuple(x.shape)}, with a last dimension not larger")
    turning, passing = run.up(x).tensor_split([size], -1)
    ordered, rotation = rotated(turning, mode)
    return run.down(torch.cat([ordered * run.up(cos) + rotation * run.up(sin), passing], -1), x.dtype)


@register(
    "npu_mrope(Tensor positions, Tensor query, Tensor key, Tensor cos_sin_cache, int head_size, *, "
    "int[]? mrope_section=None, str? rotary_mode='half', str? cache_mode='default') -> (Tensor query, Tensor key)",
    source="op-plugin schema, manual, host code and test. The manual spells the second mode 'interleaved'; the host "
    "code "
    "takes 'interleave' alone and is followed. The interleaved cache uses the second section for both rows, as the "
    "manual and the test do",
)
def mrope(
    run: Precision,
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    cos_sin_cache: Tensor,
    head_size: int,
    mrope_section: tuple[int, ...] | None,
    rotary_mode: str | None,
    cache_mode: str | None,
) -> tuple[Tensor, Tensor]:
    mode = "half" if rotary_mode is None else rotary_mode
    check(mode in {"half", "interleave"}, "rotary_mode", mode, "must be 'half' or 'interleave'")
    check(cos_sin_cache.dim() == 2, "cos_sin_cache", cos_sin_cache, "must be [max_seq_len, rotary_dim]")
    rotary_dim = cos_sin_cache.shape[1]
    fits = rotary_dim % 2 == 0 and rotary_dim <= head_size
    check(fits, "head_size", head_size, f"must not be below the even rotary size {rotary_dim} of the cache")
    longest = cos_sin_cache.shape[0]
    inside = positions.numel() == 0 or (int(positions.min()) >= 0 and int(positions.max()) < longest)
    check(inside, "positions", positions, f"must lie in [0, {longest})")
    cos, sin = run.up(cos_sin_cache)[positions.long()].chunk(2, -1)
    if positions.dim() == 2:
        section = tuple(mrope_section or ())
        rows, half = positions.shape[0], rotary_dim // 2
        fits = len(section) == rows and sum(section) == half
        check(fits, "mrope_section", section, f"must hold {rows} lengths that sum to {half}")
        cos, sin = (_merged(angle, section, cache_mode) for angle in (cos, sin))
    else:
        check(positions.dim() == 1, "positions", positions, "must have 1 or 2 dimensions")
    results = [_rope(run, x, cos, sin, head_size, mode, name) for name, x in (("query", query), ("key", key))]
    return results[0], results[1]


def _merged(angle: Tensor, section: tuple[int, ...], cache_mode: str | None) -> Tensor:
    """One row of angles per token out of one per token and section, [sections, tokens, half] → [tokens, half]."""
    mode = "default" if cache_mode is None else cache_mode
    check(mode in {"default", "interleave"}, "cache_mode", mode, "must be 'default' or 'interleave'")
    if mode == "default":
        return torch.cat([part[index] for index, part in enumerate(torch.split(angle, list(section), -1))], -1)
    check(len(section) == 3, "cache_mode", mode, "needs three sections")
    column = torch.arange(angle.shape[-1], device=angle.device)
    source = torch.where(column < 3 * section[1], column % 3, 0)
    return angle[source, :, column].t()


def _rope(run: Precision, x: Tensor, cos: Tensor, sin: Tensor, head_size: int, mode: str, name: str) -> Tensor:
    tokens = cos.shape[0]
    fits = x.dim() == 2 and x.shape[0] == tokens and x.shape[1] % head_size == 0
    check(fits, name, x, f"must be [{tokens}, heads · {head_size}]")
    heads = run.up(x).reshape(tokens, -1, head_size)
    size = 2 * cos.shape[-1]
    turning, passing = heads.tensor_split([size], -1)
    c, s = cos.unsqueeze(1), sin.unsqueeze(1)
    if mode == "half":
        first, second = turning.chunk(2, -1)
        turned = torch.cat([first * c - second * s, second * c + first * s], -1)
    else:
        even, odd = turning[..., 0::2], turning[..., 1::2]
        turned = torch.stack([even * c - odd * s, odd * c + even * s], -1).flatten(-2)
    return run.down(torch.cat([turned, passing], -1).reshape(x.shape), x.dtype)

"""Scores of the fused attention family: scaling, position encoding (pse), masking and dropout, for a block of rows.

pse_type 1      scale·(Q·Kᵀ + pse)
pse_type 0      scale·Q·Kᵀ + pse
pse_type 2, 3   scale·Q·Kᵀ − slope·|i − j|, 3 with the root of the distance
"""

from __future__ import annotations

import torch
from torch import Tensor

from .attention_call import AttentionCall
from .attention_layouts import Segment
from .errors import check
from .precision import Precision

MASKED = torch.finfo(torch.float32).min
_COMPRESSED_ROWS = 1024


def masked(call: AttentionCall, segment: Segment, start: int, stop: int) -> Tensor | None:
    """True where the rows start … stop must not look; broadcasts to [B, N, rows, columns]; None: nothing is masked."""
    if call.mask is None:
        return None
    if call.sparse_mode in {0, 1, 5}:
        return _given(call.mask, call, segment)[..., start:stop, :]
    row = torch.arange(start, stop, device=segment.query.device).unsqueeze(1)
    column = torch.arange(segment.columns, device=segment.query.device)
    shift = segment.columns - segment.rows
    if call.sparse_mode == 2 or (call.sparse_mode == 8 and segment.index != _first(call)):
        return column > row
    if call.sparse_mode in {3, 6} or (call.sparse_mode == 7 and segment.index != _last(call)):
        causal = column > row + shift
        return causal & ~_in_prefix(call, segment, column) if call.sparse_mode == 6 else causal
    return (column < row + shift - call.pre) | (column > row + shift + call.next)


def outside_band(call: AttentionCall, segment: Segment, start: int, stop: int) -> Tensor:
    """Cells that the band of sparse_mode 0 leaves out, its origin at the top left."""
    row = torch.arange(start, stop, device=segment.query.device).unsqueeze(1)
    column = torch.arange(segment.columns, device=segment.query.device)
    return (column < row - call.pre) | (column > row + call.next)


def empty_rows(call: AttentionCall, segment: Segment, start: int, stop: int) -> tuple[Tensor, Tensor] | None:
    """Rows that see nothing, [rows] or more: those that give 0, and those that give the mean of V.

    With sparse_mode 0 the device knows a row to be empty only where the band leaves it nothing.
    """
    hidden = masked(call, segment, start, stop)
    if hidden is None or call.sink is not None:
        return None
    empty = hidden.all(-1)
    if call.zeroes_empty_rows:
        return empty, torch.zeros_like(empty)
    known = outside_band(call, segment, start, stop).all(-1) if call.sparse_mode == 0 else torch.zeros_like(empty)
    return empty & known, empty & ~known


def _given(mask: Tensor, call: AttentionCall, segment: Segment) -> Tensor:
    mask = mask.bool()
    rows, columns = segment.rows, segment.columns
    if call.layout == "TND":
        fits = mask.shape[-2] >= rows and mask.shape[-1] >= columns
        check(fits, "atten_mask", mask, f"must cover the longest sequence, here {rows} by {columns}")
        return mask[..., :rows, :columns]
    full = segment.query.shape[:3]
    fits = tuple(mask.shape[-2:]) == (rows, columns)
    if mask.dim() == 4:
        fits = fits and mask.shape[0] in {1, full[0]} and mask.shape[1] in {1, full[1]}
    check(fits, "atten_mask", mask, f"must broadcast to [{full[0]}, {full[1]}, {rows}, {columns}]")
    return mask


def _in_prefix(call: AttentionCall, segment: Segment, column: Tensor) -> Tensor:
    """[B, 1, 1, columns]: the columns that every row of a batch may see."""
    batches = segment.query.shape[0]
    lengths = call.prefix[segment.index : segment.index + 1] if call.layout == "TND" else call.prefix
    check(len(lengths) == batches, "prefix", call.prefix, "must have one entry per batch")
    return column < torch.tensor(lengths, device=column.device).reshape(-1, 1, 1, 1)


def _lengths(call: AttentionCall) -> list[int]:
    starts = (0, *call.q_ends[:-1])
    return [end - start for start, end in zip(starts, call.q_ends, strict=True)]


def _first(call: AttentionCall) -> int:
    return next((index for index, length in enumerate(_lengths(call)) if length > 0), 0)


def _last(call: AttentionCall) -> int:
    return max((index for index, length in enumerate(_lengths(call)) if length > 0), default=0)


def position_bias(call: AttentionCall, segment: Segment, pse: Tensor, start: int, stop: int) -> Tensor:
    """The bias of the rows start … stop, broadcasting to [B, N, rows, columns]; linear in pse."""
    batch, heads, rows, _ = segment.query.shape
    columns = segment.columns
    device = segment.query.device
    row = torch.arange(start, stop, device=device).unsqueeze(1)
    column = torch.arange(columns, device=device)
    if call.pse_type in {2, 3}:
        check(
            tuple(pse.shape) in {(heads,), (batch, heads)}, "pse", pse, f"must be the slopes [{heads}] or [B, {heads}]"
        )
        # With sparse_mode 8 only the first sequence was cut, so only it starts elsewhere.
        offset = 0 if call.sparse_mode == 8 and segment.index else call.kv_start - call.q_start
        distance = (column - row + offset).abs().to(pse.dtype)
        return -pse.reshape(-1, heads, 1, 1) * (distance.sqrt() if call.pse_type == 3 else distance)
    if pse.dim() == 1:
        return _flat_bias(segment, pse, heads, start, stop)
    fits = pse.dim() == 4 and pse.shape[0] in {1, batch} and pse.shape[1] == heads and pse.shape[3] == columns
    compressed = fits and pse.shape[2] == _COMPRESSED_ROWS != rows
    fits = fits and (pse.shape[2] in {1, rows} or compressed)
    check(
        fits,
        "pse",
        pse,
        f"must be [B or 1, {heads}, {rows} or 1, {columns}] or ALiBi-compressed to {_COMPRESSED_ROWS} rows",
    )
    if not compressed:
        return pse if pse.shape[2] == 1 else pse[:, :, start:stop]
    check(rows == columns and rows > _COMPRESSED_ROWS, "pse", pse, "compression needs Sq = Skv above 1024")
    # The given rows are the last ones. ALiBi depends on j − i alone, so an earlier row is the last one, shifted;
    # what would lie right of the diagonal is masked by the causal modes that allow compression.
    kept = rows - _COMPRESSED_ROWS
    source_row = torch.where(row >= kept, row - kept, _COMPRESSED_ROWS - 1)
    source_column = torch.where(row >= kept, column, column - row + rows - 1)
    inside = source_column < columns
    return torch.where(inside, pse[:, :, source_row, source_column.clamp(max=columns - 1)], 0.0)


def _flat_bias(segment: Segment, pse: Tensor, heads: int, start: int, stop: int) -> Tensor:
    """TND's one-dimensional pse: every sequence's [N, Sq, Skv], or [N, 1, Skv] where it holds fewer elements."""
    rows, columns = segment.rows, segment.columns
    full = segment.cells_before + heads * rows * columns
    if pse.numel() >= full and (segment.cells_before or pse.numel() >= heads * rows * columns):
        return pse[segment.cells_before : full].reshape(1, heads, rows, columns)[:, :, start:stop]
    first = heads * segment.columns_before
    check(pse.numel() >= first + heads * columns, "pse", pse, "must hold N·Sq·Skv or N·Skv elements of every sequence")
    return pse[first : first + heads * columns].reshape(1, heads, 1, columns)


def kept(call: AttentionCall, segment: Segment, start: int, stop: int) -> Tensor | None:
    """The dropout mask of the rows as 0 and 1, [B, N, rows, columns]; its bits are packed with the lowest first."""
    if call.dropout is None:
        return None
    batch, heads, rows, _ = segment.query.shape
    columns = segment.columns
    cells = batch * heads * rows * columns
    stop_bit = segment.cells_before + cells
    packed = call.dropout.reshape(-1)
    check(packed.dtype == torch.uint8, "dropout_mask", call.dropout, "must be uint8, one bit per score")
    check(packed.numel() * 8 >= stop_bit, "dropout_mask", call.dropout, f"must hold at least {stop_bit} bits")
    # Only the bits of these rows, head by head.
    first_rows = torch.arange(batch * heads, device=packed.device) * rows + start
    bit = (
        segment.cells_before
        + first_rows.unsqueeze(1) * columns
        + torch.arange((stop - start) * columns, device=packed.device)
    )
    bits = (packed[bit // 8] >> (bit % 8).to(torch.uint8)) & 1
    return bits.reshape(batch, heads, stop - start, columns)


def scores(run: Precision, call: AttentionCall, segment: Segment, pse: Tensor | None, start: int, stop: int) -> Tensor:
    """Masked scores of the rows start … stop, [B, N, rows, columns]."""
    batch, heads, _, size = segment.query.shape
    groups, kv_heads = heads // segment.key.shape[1], segment.key.shape[1]
    # The query heads of one key head stand together, so they are more rows of one product: no copy of K.
    q = run.up(segment.query[:, :, start:stop]).reshape(batch, kv_heads, groups * (stop - start), size)
    products = (q @ run.up(segment.key).mT).reshape(batch, heads, stop - start, segment.columns)
    if pse is None:
        value = products * call.scale
    elif call.pse_type == 1:
        value = (products + position_bias(call, segment, run.up(pse), start, stop)) * call.scale
    else:
        value = products * call.scale + position_bias(call, segment, run.up(pse), start, stop)
    hidden = masked(call, segment, start, stop)
    return value if hidden is None else value.masked_fill(hidden, MASKED)

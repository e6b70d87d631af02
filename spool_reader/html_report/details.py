"""What opens when a failing call is chosen: its row, cut to what is shown, in packed pieces that a browser opens one by one."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from ..rows import SEVERITY, Finding, encode_row
from ..terminal import sanitised
from .packing import pack

# Of more failing calls than this, the worst open; the first divergence of each rank always does.
DETAILED = 10_000
_PIECE = 40
_OUTPUTS = 24
_TEXT = 1000
_ITEMS = 64
_DEPTH = 7
_FIRST = 9.0
_FIELDS = (
    "mode",
    "device",
    "recorded_on",
    "origin",
    "status",
    "standard_status",
    "stable",
    "message",
    "bundle",
    "reproduce",
)
_LISTS = ("notes", "known", "known_expired", "arguments")
_OUTPUT_FIELDS = (
    "index",
    "path",
    "verdict",
    "standard",
    "dtype",
    "bench_dtype",
    "shape",
    "ratio",
    "checks",
    "metrics",
    "worst",
    "would_pass",
    "message",
    "spread",
)


class Details:
    """The rows of failing calls, the worst of them kept, by the number that a call has among the calls of the report."""

    def __init__(self, limit: int = DETAILED) -> None:
        self.failing = 0
        self._limit = limit
        self._heap: list[tuple[float, float, int, bytes]] = []
        self._started: set[tuple[str, int]] = set()

    def add(self, call: int, finding: Finding, row: Mapping[str, Any]) -> None:
        """Keep the row if its call failed and is among the worst so far."""
        if SEVERITY[finding.verdict] < SEVERITY["known"]:
            return
        self.failing += 1
        weight = float(SEVERITY[finding.verdict])
        if finding.verdict == "error" and (finding.session, finding.rank) not in self._started:
            self._started.add((finding.session, finding.rank))
            weight = _FIRST
        ratio = math.inf if finding.ratio is None else finding.ratio
        if len(self._heap) < self._limit:
            heapq.heappush(self._heap, (weight, ratio, -call, _detail(row)))
        elif (weight, ratio, -call) > self._heap[0][:3]:
            heapq.heapreplace(self._heap, (weight, ratio, -call, _detail(row)))

    def __len__(self) -> int:
        return len(self._heap)

    def packed(self, kept: list[int]) -> tuple[list[int], list[str]]:
        """The places among the `kept` calls that open, ascending, and their rows, so many a piece, in that order."""
        found = sorted((-call, row) for _, _, call, row in self._heap)
        placed = [(place, row) for call, row in found if (place := _place(kept, call)) is not None]
        pieces = [placed[start : start + _PIECE] for start in range(0, len(placed), _PIECE)]
        return [place for place, _ in placed], [
            pack(b"[" + b",".join(row for _, row in piece) + b"]") for piece in pieces
        ]

    @property
    def piece(self) -> int:
        """How many rows stand in a piece."""
        return _PIECE


def _place(kept: list[int], call: int) -> int | None:
    place = bisect_left(kept, call)
    return place if place < len(kept) and kept[place] == call else None


def _detail(row: Mapping[str, Any]) -> bytes:
    outputs = [output for output in row.get("outputs") or () if isinstance(output, Mapping)]
    # The worst are shown where there are very many.
    shown = sorted(outputs, key=lambda output: -SEVERITY.get(str(output.get("verdict")), 0))[:_OUTPUTS]
    detail = {name: row[name] for name in _FIELDS if row.get(name) not in (None, "")}
    detail.update({name: row[name] for name in _LISTS if isinstance(row.get(name), (list, tuple)) and row[name]})
    detail["outputs"] = [{name: output[name] for name in _OUTPUT_FIELDS if name in output} for output in shown]
    detail["more_outputs"] = len(outputs) - len(shown)
    # Plain ASCII without a backslash has nothing to clean: so is nearly every row.
    line = encode_row(detail)
    if b"\\" in line or len(line) > _TEXT * _ITEMS:
        line = encode_row(_clean(detail, 0))
    return line.rstrip(b"\n")


def _clean(value: Any, depth: int) -> Any:
    """The value with harmless texts, and of a size that a page can show."""
    if isinstance(value, str):
        return sanitised(value, _TEXT)
    if depth > _DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {sanitised(name, 100): _clean(item, depth + 1) for name, item in list(value.items())[:_ITEMS]}
    if isinstance(value, (list, tuple)):
        return [_clean(item, depth + 1) for item in value[:_ITEMS]]
    return value

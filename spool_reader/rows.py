"""Result rows: one JSON object a call, and the short form of it that stays in memory.

A row is strict JSON: nan and inf are the strings "nan", "inf", "-inf".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ROW_VERSION = 1
# How the message of a row begins when judging itself failed.
INTERNAL = "internal error of spool-check"
SEVERITY = {"skip": 0, "pass": 1, "known": 2, "warning": 3, "error": 4}
Key = tuple[str, int, int, int]


@dataclass(frozen=True)
class Finding:
    """What summaries keep of a row.

    `ratio` is the worst metric over its limit: above 1 fails. `known` names the known differences that cover its errors,
    `expired` those that would cover some, had their version not come.
    """

    session: str
    rank: int
    step: int
    seq: int
    api: str
    phase: str
    verdict: str
    standard: str
    ratio: float | None
    message: str
    known: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """What a row is known by: there is one for each call, whatever died in between."""
        return self.session, self.rank, self.step, self.seq

    @property
    def operator(self) -> str:
        """The API without its number: `Functional.linear`."""
        return self.api.rpartition(".")[0]


def finding_of(row: Mapping[str, Any]) -> Finding:
    """The short form of a row; KeyError, TypeError or ValueError when it is none."""
    ratios = [number(output.get("ratio")) for output in row.get("outputs", ())]
    known = [math.inf if math.isnan(ratio) else ratio for ratio in ratios if ratio is not None]
    verdict = row["verdict"]
    if verdict not in SEVERITY:
        raise ValueError(f"unknown verdict {verdict!r}")
    try:
        rank, step, seq = int(row["rank"]), int(row["step"]), int(row["seq"])
    except OverflowError as error:
        raise ValueError("an infinite rank, step or seq") from error
    return Finding(
        str(row["session"]),
        rank,
        step,
        seq,
        str(row["api"]),
        str(row.get("phase", "")),
        verdict,
        str(row.get("standard") or ""),
        max(known, default=None),
        str(row.get("message") or ""),
        tuple(map(str, row.get("known") or ())),
        tuple(map(str, row.get("known_expired") or ())),
    )


def number(value: Any) -> float | None:
    """A number as rows write it, `"nan"` and `"inf"` included."""
    if isinstance(value, str):
        return float(value) if value in ("nan", "inf", "-inf") else None
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def encode_row(row: Mapping[str, Any]) -> bytes:
    """The row's line."""
    try:
        text = json.dumps(row, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_strict(row), allow_nan=False, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return value


def skip_row(key: Key, api: str, phase: str, reason: str, **more: Any) -> dict[str, Any]:
    """The row of a call that was not judged."""
    session, rank, step, seq = key
    return {
        "v": ROW_VERSION,
        "session": session,
        "rank": rank,
        "step": step,
        "seq": seq,
        "api": api,
        "phase": phase,
        "origin": more.get("origin"),
        "verdict": "skip",
        "status": "skip",
        "standard": more.get("standard"),
        "standard_status": "skip",
        "message": reason,
        "outputs": [],
        "mode": None,
        "device": more.get("device"),
        "recorded_on": more.get("recorded_on"),
        "stable": None,
        "notes": [],
        "timings": more.get("timings", {}),
    }

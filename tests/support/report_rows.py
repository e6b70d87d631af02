"""Result rows made by hand, for reports: a small training with one operator that is wrong from a step on."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spool_reader.rows import encode_row

# seq → API; the phase is backward for Aten calls.
CALLS = (
    "Functional.linear.0",
    "Functional.layer_norm.0",
    "Functional.gelu.0",
    "Aten.gelu_backward.0",
    "Torch.randint.0",
)
WRONG, SINCE = "Functional.layer_norm.0", 2


def row(
    rank: int = 0, step: int = 0, seq: int = 0, api: str = CALLS[0], ratio: float = 0.01, **more: Any
) -> dict[str, Any]:
    """One row with one output, whose only check is `ratio` times its limit; above one is an error."""
    verdict = more.pop("verdict", "error" if ratio > 1 else "pass")
    message = more.pop("message", f"max_abs_err {ratio} exceeds 1" if verdict == "error" else "")
    output = {
        "index": 0,
        "path": "0",
        "verdict": verdict,
        "status": verdict,
        "standard": "benchmark",
        "standard_status": verdict,
        "dtype": more.pop("dtype", "float32"),
        "bench_dtype": "float64",
        "shape": [4, 8],
        "metrics": {"cosine": 0.5, "max_abs_err": ratio},
        "limits": {"max_abs_err": 1.0},
        "checks": [["max_abs_err", ratio, 1.0, ratio <= 1], ["rmse_ratio", 0.5, 2.0, True]],
        "ratio": ratio,
        "worst": {"index": [1, 2], "device": 2.5, "reference": 1.5},
        "would_pass": {"atol": ratio} if ratio > 1 else None,
        "message": message,
        **more.pop("output", {}),
    }
    return {
        "v": 1,
        "session": f"run1-rank{rank}",
        "rank": rank,
        "step": step,
        "seq": seq,
        "api": api,
        "phase": "backward" if api.startswith("Aten") else "forward",
        "origin": "Functional.gelu.0" if api.startswith("Aten") else None,
        "verdict": verdict,
        "status": verdict,
        "standard": "benchmark",
        "standard_status": verdict,
        "message": message,
        "outputs": [] if verdict == "skip" else [output],
        "mode": "two-way",
        "device": "cpu",
        "recorded_on": "npu:0",
        "notes": [],
        "timings": {"total": 0.01},
        **more,
    }


def training(ranks: int = 2, steps: int = 4) -> list[dict[str, Any]]:
    """Every call passes but `WRONG` from step `SINCE` on, worse from step to step; the last call of a step is skipped."""
    rows = []
    for rank in range(ranks):
        for step in range(steps):
            for seq, api in enumerate(CALLS):
                wrong = api == WRONG and step >= SINCE
                ratio = 4.0 * 10 ** (step - SINCE) if wrong else 0.25 if api.startswith("Functional.gelu") else 0.01
                more = {"verdict": "skip", "message": "random: randint"} if "randint" in api else {}
                dtype = "bfloat16" if api.startswith("Functional.linear") else "float32"
                rows.append(row(rank, step, seq, api, ratio, dtype=dtype, **more))
    return rows


def write_rows(folder: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """A results folder of these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    for item in rows:
        with (folder / f"results-rank{item['rank']}.jsonl").open("ab") as file:
            file.write(encode_row(item))
    return folder


def packed(page: str, name: str) -> list[Any]:
    """What stands packed in a report, one value a line."""
    found = re.search(rf'<script type="text/plain" id="{name}">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return [json.loads(gzip.decompress(base64.b64decode(line))) for line in found[1].split()]

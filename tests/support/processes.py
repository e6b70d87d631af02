"""What tests that run real processes share."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """This process's environment with the repository importable and no colours."""
    env = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        env.pop(name, None)
    return env


def rows_of(*folders: Path) -> list[dict[str, Any]]:
    """Every row of the results folders given."""
    rows = []
    for folder in folders:
        for path in sorted(folder.glob("results-rank*.jsonl")):
            rows += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return rows


def left_in(spool: Path) -> list[str]:
    """Every bundle that is still anywhere in the spool."""
    return sorted(path.relative_to(spool).as_posix() for path in spool.rglob("*.safetensors"))


def key_of(row: dict[str, Any]) -> tuple[str, int, int, int]:
    return row["session"], row["rank"], row["step"], row["seq"]


def free_port() -> int:
    """A port of this host that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

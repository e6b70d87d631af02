"""The peer tool as an oracle: one subprocess in its own environment for many pairs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-peer" / "bin" / "python"
ORACLE = Path(__file__).with_name("peer_oracle.py")

Pair = tuple[str, torch.Tensor, torch.Tensor]  # base name of the API, device, bench


def require_peer() -> None:
    """Skip the test where the peer is not installed."""
    if not PYTHON.exists():
        pytest.skip("the peer (mindstudio-probe 8.3.0) is not installed in .venv-peer; `make peer` installs it")


def run_oracle(command: str, *arguments: Path, folder: Path) -> None:
    """Run one command of the oracle script."""
    words = [str(PYTHON), str(ORACLE), command, *map(str, arguments)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def save_pairs(pairs: list[Pair], folder: Path, stem: str = "pairs") -> tuple[Path, Path]:
    """The pairs as files that the oracle reads: tensors, and API names."""
    tensors, names = folder / f"{stem}.safetensors", folder / f"{stem}.json"
    flat = {f"{i}.device": device.contiguous().clone() for i, (_, device, _) in enumerate(pairs)}
    flat |= {f"{i}.bench": bench.contiguous().clone() for i, (_, _, bench) in enumerate(pairs)}
    save_file(flat, tensors)
    names.write_text(json.dumps([api for api, _, _ in pairs]))
    return tensors, names


def peer_columns(pairs: list[Pair], folder: Path) -> list[dict[str, Any]]:
    """The peer's status and details row of every pair."""
    out = folder / "out.json"
    run_oracle("metrics", *save_pairs(pairs, folder), out, folder=folder)
    return list(json.loads(out.read_text()))

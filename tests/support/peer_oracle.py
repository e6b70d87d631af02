"""Runs inside the peer's own environment: its columns and statuses for many pairs, and its compare of two CSV files.

Usage: python peer_oracle.py metrics PAIRS.safetensors NAMES.json OUT.json
       python peer_oracle.py details PAIRS.safetensors NAMES.json OUT_FOLDER
       python peer_oracle.py compare NPU.csv GPU.csv OUT_FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import types
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
import numpy as np  # noqa: E402
from msprobe.pytorch.api_accuracy_checker.compare import api_precision_compare as precision  # noqa: E402
from msprobe.pytorch.api_accuracy_checker.compare.compare import Comparator  # noqa: E402
from safetensors.torch import load_file  # noqa: E402


def _plain(value):
    if isinstance(value, (np.floating, float)):
        return float(value)
    if isinstance(value, (np.integer, int)):
        return int(value)
    return str(value)


def metrics(pairs: str, names: str, out: str) -> None:
    np.seterr(all="ignore")
    tensors = load_file(pairs)
    comparator = Comparator("unused_result.csv", "unused_details.csv", True)
    found = []
    for number, api in enumerate(json.loads(Path(names).read_text())):
        bench, device = tensors[f"{number}.bench"], tensors[f"{number}.device"]
        status, rows = comparator._compare_core_wrapper(api, bench, device)
        found.append({"status": status, "row": [_plain(value) for value in rows[0]]})
    Path(out).write_text(json.dumps(found))


def details(pairs: str, names: str, folder: str) -> None:
    tensors = load_file(pairs)
    files = [os.path.join(folder, name) for name in ("peer_result.csv", "peer_details.csv")]
    comparator = Comparator(*files, False)
    for number, api in enumerate(json.loads(Path(names).read_text())):
        info = types.SimpleNamespace(
            bench_output=tensors[f"{number}.bench"],
            device_output=tensors[f"{number}.device"],
            bench_grad=None,
            device_grad=None,
            backward_message="",
            rank=0,
        )
        comparator.compare_output(api, info)


def compare(npu: str, gpu: str, folder: str) -> None:
    files = [os.path.join(folder, name) for name in ("peer_compare_result.csv", "peer_compare_details.csv")]
    precision.api_precision_compare(precision.CompareConfig(npu, gpu, *files))


if __name__ == "__main__":
    {"metrics": metrics, "details": details, "compare": compare}[sys.argv[1]](*sys.argv[2:])

"""The peer's own upload of given calls to a shared directory, run in the peer's environment by benchmarks/capture.py.

`FOLDER SIZE COUNT` prints the microseconds that one upload of `F.linear`-like arguments of SIZE bytes takes on the training
thread; imports nothing of ours.
"""

from __future__ import annotations

import sys
import time

import torch


def main(folder: str, size: int, count: int) -> None:
    """Upload `count` calls of two arguments and a result, of `size` bytes together."""
    from msprobe.pytorch.api_accuracy_checker.common.utils import ApiData
    from msprobe.pytorch.api_accuracy_checker.tensor_transport_layer.attl import ATTL, ATTLConfig

    attl = ATTL("bench", ATTLConfig(False, "", 0, nfs_path=folder))
    x, y, z = (torch.randn(max(size // 12, 1)) for _ in range(3))
    times = []
    for number in range(count):
        start = time.perf_counter()
        attl.upload(ApiData(f"Torch.add.{number}", (x, y), {}, z, 0, 0))
        times.append(time.perf_counter() - start)
    print(sorted(times)[count // 2] * 1e6)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

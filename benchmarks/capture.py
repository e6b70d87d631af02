"""What recording costs the training: time per call by size, time per step of two models, memory.

Everything is a ratio of figures from one run. The physical minimum of recording is one copy of every byte that is recorded; it
is measured by copying tensors of the same sizes in the same process, into memory that has been used before. Steps are timed
while publishers are at work, and the spool is emptied between them, as a reader that keeps up would.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spool import read_bundle
from spool_check import PrecisionDebugger

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / ".venv-peer" / "bin" / "python"
KiB, MiB = 2**10, 2**20


@contextmanager
def recording(folder: Path) -> Iterator[PrecisionDebugger]:
    """A debugger on a new spool under `folder`, which is deleted afterwards."""
    spool = Path(tempfile.mkdtemp(dir=folder))
    debugger = PrecisionDebugger(spool=spool)
    debugger.start()
    try:
        yield debugger
    finally:
        debugger.close()
        shutil.rmtree(spool)


def empty(debugger: PrecisionDebugger, spool: Path) -> None:
    """Wait for what is queued, and delete what has been published."""
    assert debugger._publisher is not None
    debugger._publisher.drain(600)
    for step in spool.glob("*/rank*/step*"):
        shutil.rmtree(step)


def per_call(folder: Path, size: int, rounds: int) -> tuple[float, float, float]:
    """Microseconds of an addition of `size` bytes altogether: bare, copying them, and how much recording adds."""
    x, y = (torch.randn(max(size // 12, 1)) for _ in range(2))
    z = x + y
    rooms = [torch.empty_like(x) for _ in range(3)]

    def copy() -> None:
        for room, tensor in zip(rooms, (x, y, z), strict=True):
            room.copy_(tensor)

    def timed(work: Callable[[], object]) -> float:
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e6

    bare = median(timed(lambda: torch.add(x, y, out=None)) for _ in range(rounds))
    copying = median(timed(copy) for _ in range(rounds))
    recorded = []
    with recording(folder) as debugger:
        for number in range(rounds):
            recorded.append(timed(lambda: torch.add(x, y, out=None)))
            if number % max(1, 64 * MiB // size) == 0:
                empty(debugger, folder)
    return bare, copying, median(recorded[rounds // 10 :]) - bare


def peer_call(folder: Path, size: int, count: int) -> float | None:
    """Microseconds of the peer's upload of a call of the same size; None without the peer."""
    if not PEER.exists():
        return None
    room = Path(tempfile.mkdtemp(dir=folder))
    command = [str(PEER), str(ROOT / "benchmarks" / "capture_peer.py"), str(room), str(size), str(count)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=room)
        return float(done.stdout.split()[-1])
    finally:
        shutil.rmtree(room)


class SmallOps(nn.Module):
    """Many small operators: a stack of normalised layers of width 64."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(16))
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(16))

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + F.gelu(layer(norm(x)))
        return x.square().mean()


class BigTensors(nn.Module):
    """Few operators on tensors of megabytes: two layers of width 1024 on 2048 rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1024, 1024) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x.square().mean()


def step_times(folder: Path, make: Callable[[], nn.Module], x: Tensor, steps: int) -> dict[str, float]:
    """Seconds of a step, bare and recorded; of one copy of what is recorded; of publishing it; calls and bytes of a step."""
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> float:
        start = time.perf_counter()
        model(x).backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - start

    bare = median([step() for _ in range(steps + 2)][2:])
    recorded, drained = [], []
    with recording(folder) as debugger:
        for number in range(steps + 2):
            recorded.append(step())
            start = time.perf_counter()
            assert debugger._publisher is not None
            debugger._publisher.drain(600)
            drained.append(time.perf_counter() - start)
            bundles = sorted(folder.glob(f"*/rank0/step{number}/*.safetensors"))
            if number == 0:
                sizes = [tensor for path in bundles for tensor in read_bundle(path).tensors.values()]
            empty(debugger, folder)
            debugger.step()
    rooms: dict[tuple[int, torch.dtype], Tensor] = {}
    for tensor in sizes:
        rooms.setdefault((tensor.numel(), tensor.dtype), torch.empty_like(tensor).flatten())

    def copy() -> float:
        start = time.perf_counter()
        for tensor in sizes:
            rooms[tensor.numel(), tensor.dtype].copy_(tensor.view(-1))
        return time.perf_counter() - start

    return {
        "bare": bare,
        "copy": median(copy() for _ in range(steps)),
        "recorded": median(recorded[2:]),
        "published": median(drained[2:]),
        "calls": len(bundles),
        "bytes": sum(tensor.nbytes for tensor in sizes),
    }


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("/dev/shm"), help="where the spool lies")
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="spool-check-bench-", dir=options.dir))
    try:
        print("time on the training thread above the call itself, by bytes of a call (µs)")
        print(
            f"{'bytes':>10} {'one copy':>9} {'recording':>10} {'above copy':>11} {'recording/copy':>15} {'peer upload':>12}"
        )
        for size in (1 * KiB, 48 * KiB, 1 * MiB, 4 * MiB, 16 * MiB, 64 * MiB):
            rounds = max(30, min(1000, 256 * MiB // size))
            _, copying, added = per_call(folder, size, rounds)
            peer = peer_call(folder, size, max(5, min(200, 64 * MiB // size)))
            shown = f"{peer:12.0f}" if peer is not None else f"{'-':>12}"
            print(f"{size:10} {copying:9.1f} {added:10.1f} {added - copying:11.1f} {added / copying:15.2f} {shown}")
        print("\na training step, forward, backward and optimiser (ms)")
        head = ("calls", "MiB", "bare", "one copy", "recorded", "publishing after", "recorded/(bare+copy)")
        print(f"{'model':>10} " + " ".join(f"{name:>{max(8, len(name))}}" for name in head))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        models: list[tuple[str, Callable[[], nn.Module], Tensor]] = [
            ("small ops", SmallOps, torch.randn(32, 64)),
            ("big", BigTensors, torch.randn(2048, 1024)),
        ]
        for name, make, x in models:
            t = step_times(folder, make, x, options.steps)
            ratio = t["recorded"] / (t["bare"] + t["copy"])
            print(
                f"{name:>10} {t['calls']:8.0f} {t['bytes'] / MiB:8.1f} {t['bare'] * 1e3:8.2f} {t['copy'] * 1e3:8.2f} "
                f"{t['recorded'] * 1e3:8.2f} {t['published'] * 1e3:16.2f} {ratio:20.2f}"
            )
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"\npeak memory grew by {(after - before) / 1024:.0f} MiB over the steps; the queue may hold 1024 MiB")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

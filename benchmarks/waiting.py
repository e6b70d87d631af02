"""A spool with very many bundles waiting: cost of a claim, latency of watching, cost of doing nothing, memory.

The raw limit is measured in the same run on the same files: rename, read and unlink by names that are known.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

import torch

from spool import Bundle, SpoolOptions, dump_bundle, open_spool
from spool_reader.wake import Waker

OPTIONS = SpoolOptions(reserve_bytes=0)
IN_STEP = 1000
SAMPLE = 2000


@contextmanager
def folder_in(place: Path) -> Iterator[Path]:
    """A new folder that goes away at the end."""
    folder = Path(tempfile.mkdtemp(prefix="spool-check-bench-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def bundle_of(rank: int, step: int, seq: int) -> Bundle:
    """A call of a few bytes."""
    return Bundle.build(
        session="bench", rank=rank, step=step, seq=seq, api=f"Torch.neg.{seq}", phase="forward", args=(torch.ones(4),),
        kwargs={}, result=-torch.ones(4), context={}, producer={"device": "npu:0"}, time=0.0,
    )  # fmt: skip


def fill(root: Path, count: int, folders: int, ranks: int = 1) -> None:
    """`count` bundles in `folders` step folders of `ranks` ranks; written without ceremony, since it is not measured."""
    data = dump_bundle(bundle_of(0, 0, 0))
    for place in range(folders):
        rank, step = place % ranks, place // ranks
        inside = root / f"rank{rank}" / f"step{step}"
        inside.mkdir(parents=True)
        for seq in range(count // folders):
            fd = os.open(inside / f"{seq:08d}.Torch.neg.{seq}.safetensors", os.O_WRONLY | os.O_CREAT, 0o644)
            os.write(fd, data)
            os.close(fd)


def raw(root: Path) -> float:
    """Microseconds of rename, read and unlink for each of a sample of the files."""
    taken = root / "taken"
    taken.mkdir()
    last = max((root / "rank0").iterdir(), key=lambda step: int(step.name.removeprefix("step")))
    paths = sorted(last.iterdir())[: IN_STEP // 2]
    start = time.perf_counter()
    for path in paths:
        target = taken / path.name
        os.rename(path, target)
        target.read_bytes()
        os.unlink(target)
    return (time.perf_counter() - start) / len(paths) * 1e6


def claims(root: Path) -> tuple[float, float, float]:
    """Milliseconds of the first claim; microseconds of claim, load and done for each of the next; MiB that memory grew by."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open_spool(root, options=OPTIONS) as spool:
        start = time.perf_counter()
        claim = spool.claim()
        first = time.perf_counter() - start
        assert claim is not None
        claim.done()
        start, count = time.perf_counter(), 0
        while count < SAMPLE and (claim := spool.claim()) is not None:
            claim.load()
            claim.done()
            count += 1
        each = (time.perf_counter() - start) / max(count, 1)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return first * 1e3, each * 1e6, grown


def idle(root: Path, seconds: float) -> float:
    """Share of a core that a reader takes which finds nothing for it: everything that waits is of other ranks."""
    with open_spool(root, options=OPTIONS) as spool:
        spool.claim(timeout=seconds / 4, ranks={999})
        cpu, wall = time.process_time(), time.perf_counter()
        assert spool.claim(timeout=seconds, ranks={999}) is None
        return (time.process_time() - cpu) / (time.perf_counter() - wall)


def write(root: Path, count: int, pause: float) -> None:
    """The other process of `latency`: publish, and tell when each was out."""
    with open_spool(root, options=OPTIONS) as spool:
        for seq in range(count):
            time.sleep(pause)
            spool.publish(bundle_of(0, 0, seq))
            print(time.monotonic(), flush=True)


def latency(root: Path, count: int, *, events: bool) -> list[float]:
    """Milliseconds from the end of publishing, in another process, to the claim."""
    times = []
    with open_spool(root, options=OPTIONS) as spool:
        waker = Waker(spool, lambda text: None) if events else None
        if waker is not None:
            waker.idle()
        command = [sys.executable, __file__, "--write", str(root), "--latency", str(count)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(count):
                claim = spool.claim(timeout=60)
                seen = time.monotonic()
                assert claim is not None
                times.append((seen - float(writer.stdout.readline())) * 1e3)
                claim.done()
        if waker is not None:
            waker.close()
    return times


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--waiting", type=int, nargs="*", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--latency", type=int, default=60)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None:
        write(options.write, options.latency, 0.3)
        return
    print(f"{'waiting':>10} {'first claim ms':>15} {'each after µs':>14} {'raw µs':>8} {'ratio':>6} {'memory MiB':>11}")
    for count in options.waiting:
        with folder_in(options.dir) as root:
            fill(root, count, max(1, count // IN_STEP))
            limit = raw(root)
            first, each, grown = claims(root)
            print(f"{count:10} {first:15.1f} {each:14.0f} {limit:8.0f} {each / limit:6.1f} {grown:11.0f}", flush=True)
    with folder_in(options.dir) as root:
        fill(root, 100_000, 10_000, ranks=8)
        print(f"\nidle beside 100,000 files of other ranks in 10,000 folders: {100 * idle(root, 20):.1f} % of a core")
    for events in (True, False):
        with folder_in(options.dir) as root:
            times = latency(root, options.latency, events=events)
            p99 = quantiles(times, n=100)[98]
            how = "events" if events else "polling"
            print(f"from published to claimed, by {how}: median {median(times):.1f} ms, p99 {p99:.1f} ms", flush=True)


if __name__ == "__main__":
    main()

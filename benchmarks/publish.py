"""Publishing and claiming against the raw file calls for the same bytes: ratios of medians, measured in turn in one run.

    python benchmarks/publish.py [FOLDER]

The folder decides the file system; without one a temporary folder is used.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from spool import Bundle, SessionInfo, SpoolOptions, dump_bundle, open_spool

KiB, MiB = 2**10, 2**20
SIZES = (48 * KiB, MiB, 4 * MiB, 16 * MiB, 64 * MiB)
OPTIONS = SpoolOptions(fsync="none", reserve_bytes=0, max_pending_bundles=10**9)


def bundle_of(size: int) -> Bundle:
    """A call of three tensors that together have `size` bytes."""
    a, b, c = (torch.randn(size // 12) for _ in range(3))
    return Bundle.build(
        session="bench", rank=0, step=0, seq=0, api="Torch.add.0", phase="forward", args=(a, b), kwargs={}, result=c,
        context={}, producer={}, time=0.0,
    )  # fmt: skip


def numbered(bundle: Bundle, seq: int) -> Bundle:
    return Bundle(dataclasses.replace(bundle.header, seq=seq, api=f"Torch.add.{seq}"), bundle.tensors)


def raw_write(folder: Path, data: bytes, seq: int) -> None:
    """Open, write, close, rename: what no tool can do without."""
    temporary, name = folder / f".{seq}.tmp", folder / f"{seq:08d}.raw"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.close(fd)
    os.rename(temporary, name)


def raw_take(source: Path, folder: Path) -> None:
    """Rename, read, unlink."""
    target = folder / source.name
    os.rename(source, target)
    target.read_bytes()
    os.unlink(target)


def publish(root: Path) -> None:
    print(f"{'publish':>12} {'raw µs':>10} {'ours µs':>10} {'ratio':>7}")
    for size in SIZES:
        rounds = max(8, min(600, 256 * MiB // size))
        bundle = bundle_of(size)
        data = dump_bundle(bundle)
        with tempfile.TemporaryDirectory(dir=root) as folder, open_spool(folder, options=OPTIONS) as spool:
            spool.open_session(SessionInfo("bench", 0, "host", os.getpid(), "0", 0.0))
            plain = Path(folder) / "raw"
            plain.mkdir()
            raw, ours = [], []
            for seq in range(rounds):
                call = numbered(bundle, seq)
                # In turn, either first: whoever writes second finds the page cache warmed by the other.
                for own in (seq % 2 == 0, seq % 2 == 1):
                    start = time.perf_counter()
                    if own:
                        spool.publish(call)
                    else:
                        raw_write(plain, data, seq)
                    (ours if own else raw).append(time.perf_counter() - start)
                if size > MiB:
                    # Otherwise the page cache fills and the disk, not the code, is measured.
                    (plain / f"{seq:08d}.raw").unlink()
                    claim = spool.claim()
                    assert claim is not None
                    claim.done()
        a, b = statistics.median(raw), statistics.median(ours)
        print(f"{size // KiB:>8} KiB {a * 1e6:>10.0f} {b * 1e6:>10.0f} {b / a:>7.2f}")


def claim(root: Path) -> None:
    print(
        f"\n{'waiting':>12} {'raw µs':>10} {'ours µs':>10} {'ratio':>7}   claim, load, done against rename, read, unlink"
    )
    bundle = bundle_of(12 * KiB)
    data = dump_bundle(bundle)
    for count in (1_000, 10_000, 100_000):
        with tempfile.TemporaryDirectory(dir=root) as folder, open_spool(folder, options=OPTIONS) as spool:
            spool.open_session(SessionInfo("bench", 0, "host", os.getpid(), "0", 0.0))
            plain, taken = Path(folder) / "raw", Path(folder) / "taken"
            plain.mkdir()
            taken.mkdir()
            for seq in range(count):
                spool.publish(numbered(bundle, seq))
                if seq < 2_000:
                    raw_write(plain, data, seq)
            sources = sorted(plain.iterdir())
            start = time.perf_counter()
            for source in sources:
                raw_take(source, taken)
            raw = (time.perf_counter() - start) / len(sources)
            start, done = time.perf_counter(), 0
            while (found := spool.claim()) is not None:
                found.load()
                found.done()
                done += 1
            ours = (time.perf_counter() - start) / done
        assert done == count
        print(f"{count:>12} {raw * 1e6:>10.0f} {ours * 1e6:>10.0f} {ours / raw:>7.2f}")


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        publish(Path(folder))
        claim(Path(folder))


if __name__ == "__main__":
    main()

"""Bundles per second from spool to result row, beside what the file system alone allows.

The raw limit is measured in the same run on the same files: claim rename, read, append of a row, unlink, one after the other
in one process. "null replay" is the way of a bundle without running and judging its call: what spool-check itself adds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from spool import Bundle, SessionInfo, open_spool
from spool_reader.events import RowWritten
from spool_reader.judging import Judge
from spool_reader.rows import ROW_VERSION
from spool_reader.watch import reprocess

API = "Torch.add"


def fill(folder: Path, count: int, elements: int) -> None:
    """A finished training of `count` calls in steps of 1000."""
    folder.mkdir()
    x, y = torch.randn(elements), torch.randn(elements)
    z = x + y
    with open_spool(folder) as spool:
        session = spool.open_session(SessionInfo("bench", 0, "host", 1, "0", 0.0))
        for number in range(count):
            step, seq = divmod(number, 1000)
            bundle = Bundle.build(
                session="bench", rank=0, step=step, seq=seq, api=f"{API}.{seq}", phase="forward", args=(x, y), kwargs={},
                result=z, context={}, producer={"device": "npu:0"}, time=0.0,
            )  # fmt: skip
            spool.publish(bundle)
        session.close("closed", {"published": count})


def raw(folder: Path) -> float:
    """The file operations that no reader can do without."""
    start = time.perf_counter()
    out, folder = folder / "rows", folder / "spool"
    claimed = folder / "claimed"
    claimed.mkdir()
    row = b"x" * 1500 + b"\n"
    with out.open("ab", buffering=0) as rows:
        for step in sorted((folder / "rank0").glob("step*")):
            for name in sorted(os.listdir(step)):
                os.rename(step / name, claimed / name)
                (claimed / name).read_bytes()
                rows.write(row)
                os.unlink(claimed / name)
        os.fsync(rows.fileno())
    return time.perf_counter() - start


def null_row(judge: Judge, bundle: Bundle) -> dict[str, Any]:
    """A row of the usual size for a call that was not run."""
    header = bundle.header
    return {
        "v": ROW_VERSION, "session": header.session, "rank": header.rank, "step": header.step, "seq": header.seq,
        "api": header.api, "phase": header.phase, "verdict": "pass", "standard": "none", "message": "x" * 1000,
        "outputs": [], "timings": {},
    }  # fmt: skip


def measure(count: int, elements: int, work: Callable[[Path], float]) -> float:
    """Bundles per second of `work`, which returns its seconds, on a fresh spool."""
    folder = Path(tempfile.mkdtemp(prefix="spool-check-bench-"))
    try:
        fill(folder / "spool", count, elements)
        return count / work(folder)
    finally:
        shutil.rmtree(folder)


def judged(workers: int) -> Callable[[Path], float]:
    """All of it, from the moment that the first row is there: worker processes take about two seconds to start."""

    def work(folder: Path) -> float:
        times: list[float] = []

        def note(event: object) -> None:
            if isinstance(event, RowWritten):
                times.append(time.perf_counter())

        start = time.perf_counter()
        summary = reprocess(folder / "spool", out=folder / "out", workers=workers, device="cpu", on_event=note)
        assert summary.verdicts.keys() == {"pass"}, summary.verdicts
        if workers == 0:
            return times[-1] - start
        # Rows come in groups: the first group ends the start, the others are what is measured.
        after = sum(moment > times[0] + 0.05 for moment in times)
        return (times[-1] - times[0]) * len(times) / after

    return work


def null(folder: Path) -> float:
    """All of it but replay and verdict."""
    with mock.patch.object(Judge, "row", null_row):
        return judged(0)(folder)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--elements", type=int, default=1000, help="float32 elements of each of the three tensors")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    limit = measure(options.count, options.elements, raw)
    print(f"{options.count} bundles of {12 * options.elements / 1000:.0f} kB, {os.cpu_count()} cores")
    print(f"{'':24} {'bundles/s':>10} {'of raw limit':>13}")
    print(f"{'raw file operations':24} {limit:10.0f} {'1.00':>13}")
    runs = [("null replay, in process", null)]
    runs += [(f"judged, {workers} workers", judged(workers)) for workers in options.workers]
    for name, work in runs:
        rate = measure(options.count, options.elements, work)
        print(f"{name:24} {rate:10.0f} {rate / limit:13.2f}")


if __name__ == "__main__":
    main()

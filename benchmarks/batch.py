"""A leftover spool of many ranks and steps, reprocessed: once in peace, and once with kill -9 at random moments.

Rows must equal calls whatever is killed, and cost per bundle and memory must not grow with the spool. `--json` prints one
object for each size, which tests read; otherwise a table. The generator's calls are additions of small tensors: what is
measured is the way around the judging.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from spool import Bundle, SessionInfo, SpoolOptions, open_spool
from spool_reader.results import read_rows

ROOT = Path(__file__).resolve().parents[1]
MIB = 2**20


def leftover(folder: Path, bundles: int, ranks: int, steps: int, elements: int) -> None:
    """A finished training's spool: `bundles` calls, spread evenly over ranks and steps."""
    folder.mkdir(parents=True)
    x, y = torch.randn(elements), torch.randn(elements)
    z = x + y
    with open_spool(folder, options=SpoolOptions(max_pending_bundles=10**9)) as spool:
        for rank in range(ranks):
            session = spool.open_session(SessionInfo(f"bench-rank{rank}", rank, "host", 1, "0", 0.0))
            mine = bundles // ranks + (rank < bundles % ranks)
            for number in range(mine):
                step, seq = number * steps // mine, number
                spool.publish(
                    Bundle.build(
                        session=f"bench-rank{rank}",
                        rank=rank,
                        step=step,
                        seq=seq,
                        api=f"Torch.add.{seq}",
                        phase="forward",
                        args=(x, y),
                        kwargs={},
                        result=z,
                        context={},
                        producer={"device": "npu:0"},
                        time=0.0,
                    )
                )
            session.close("closed", {"published": mine})


@dataclass
class Batch:
    """What one size gave."""

    bundles: int
    ranks: int
    steps: int
    generate_s: float
    peaceful_s: float
    cpu_s: float
    start_s: float
    peak_mib: float
    killed: int
    killed_s: float
    runs: int
    quarantined: int
    rows: int
    calls: int
    left: int


class RayCluster:
    """A Ray cluster of this host, with a token of its own, until `close`."""

    _HOLD = (
        "import ray, sys\n"
        "ray.init(include_dashboard=False, configure_logging=False, log_to_driver=False)\n"
        "print(ray.get_runtime_context().gcs_address, flush=True)\n"
        "sys.stdin.read()\n"
    )

    def __init__(self) -> None:
        os.environ.update(
            RAY_AUTH_MODE="token",
            RAY_AUTH_TOKEN=secrets.token_hex(32),
            RAY_USAGE_STATS_ENABLED="0",
            PYTHONPATH=str(ROOT),
        )
        self._holder = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", self._HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._holder.stdout is not None
        self.words = ["--engine", "ray", "--address", self._holder.stdout.readline().strip()]

    def workers(self) -> list[int]:
        """The processes of actors that judge."""
        return [pid for pid in _descendants(self._holder.pid) if _command(pid).startswith("ray::RayWorker")]

    def cpu_seconds(self) -> float:
        """What its living processes have used so far; of workers that have ended Ray keeps no account."""
        pids = [self._holder.pid, *_descendants(self._holder.pid)]
        return sum(map(_cpu_ticks, pids)) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the cluster."""
        self._holder.communicate()


class Reader:
    """`spool-check reprocess` in a process group of its own; `cluster` has its workers where they are not its children."""

    def __init__(self, spool: Path, out: Path, words: Sequence[str], cluster: RayCluster | None = None) -> None:
        self._cluster = cluster
        command = [sys.executable, "-m", "spool_check", "reprocess", str(spool), "--out", str(out), *words]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.peak = 0

    def wait(self, seconds: float | None = None) -> int | None:
        """Its exit code; None when it still runs after so many seconds."""
        end = None if seconds is None else time.monotonic() + seconds
        while self._process.poll() is None:
            self.peak = max(self.peak, _peak(self._process.pid))
            if end is not None and time.monotonic() >= end:
                return None
            time.sleep(0.02)
        assert self._process.stderr is not None
        with self._process.stderr as talk:
            self.talk = talk.read()
        return self._process.returncode

    def kill(self, choice: str) -> None:
        """kill -9: the `parent`, one `worker`, or `all` of them."""
        if choice == "worker":
            workers = self._cluster.workers() if self._cluster else _children(self._process.pid)
            if workers:
                os.kill(random.choice(workers), signal.SIGKILL)
            return
        if choice == "parent":
            self._process.kill()
        else:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def _peak(pid: int) -> int:
    """The most resident memory that a process has had, in bytes."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(found[0]) * 1024 if found else 0


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _cpu_seconds(cluster: RayCluster | None) -> float:
    """CPU seconds of the readers that have ended, of their own workers and of a cluster; other work hardly changes them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime + (cluster.cpu_seconds() if cluster else 0.0)


def _cpu_ticks(pid: int) -> int:
    """Of a process and of its children that have ended."""
    try:
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    except OSError:
        return 0


def _descendants(pid: int) -> list[int]:
    children = _children(pid)
    return children + [found for child in children for found in _descendants(child)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def until_done(
    spool: Path,
    out: Path,
    words: Sequence[str],
    kills: int,
    chance: random.Random,
    pace: float,
    cluster: RayCluster | None,
) -> tuple[int, int]:
    """Reprocess, killing at `kills` random moments up to `pace` seconds apart; how many were killed, how many runs it took."""
    killed, runs = 0, 0
    while True:
        runs += 1
        reader = Reader(spool, out, words, cluster)
        code: int | None = None
        while killed < kills:
            code = reader.wait(chance.uniform(0.0, pace))
            if code is not None:
                break
            choice = chance.choice(["parent", "worker", "all"])
            reader.kill(choice)
            killed += 1
            if choice != "worker":
                break
        else:
            code = reader.wait()
        if code is not None and (killed >= kills or not _left(spool)):
            assert code in (0, 1, 5), reader.talk
            return killed, runs


def _left(spool: Path) -> int:
    return sum(name.endswith(".safetensors") for _, _, names in os.walk(spool) for name in names)


def measure(
    folder: Path, args: argparse.Namespace, bundles: int, chance: random.Random, cluster: RayCluster | None
) -> Batch:
    """Generate, judge in peace, generate again, judge with kills."""
    words = ["--device", "cpu", *args.words, *(cluster.words if cluster else ())]
    start = time.perf_counter()
    leftover(folder / "peaceful", bundles, args.ranks, args.steps, args.elements)
    generated = time.perf_counter() - start
    leftover(folder / "empty", args.ranks, args.ranks, 1, 4)
    start = time.perf_counter()
    Reader(folder / "empty", folder / "out-empty", words).wait()
    started = time.perf_counter() - start
    start, cpu = time.perf_counter(), _cpu_seconds(cluster)
    reader = Reader(folder / "peaceful", folder / "out-peaceful", words)
    assert reader.wait() == 0, reader.talk
    peaceful, cpu = time.perf_counter() - start, _cpu_seconds(cluster) - cpu
    leftover(folder / "killed", bundles, args.ranks, args.steps, args.elements)
    # Well before the end of one run, so that the first of them is always on the way.
    pace = 0.7 * (started + 2 * (peaceful - started) / max(args.kills, 2))
    start = time.perf_counter()
    killed, runs = until_done(folder / "killed", folder / "out", words, args.kills, chance, pace, cluster)
    quarantined = _left(folder / "killed" / "quarantine")
    if quarantined:
        # A bundle that was in hand three times when its reader was killed: set aside, and taken again on demand.
        runs += until_done(folder / "killed", folder / "out", [*words, "--retry-failed"], 0, chance, 0.0, cluster)[1]
    seconds = time.perf_counter() - start
    keys = [(row["session"], row["rank"], row["step"], row["seq"]) for row in read_rows([folder / "out"])]
    assert len(keys) == len(set(keys)), "a call has two rows"
    return Batch(
        bundles, args.ranks, args.steps, generated, peaceful, cpu, started, reader.peak / MIB, killed, seconds, runs,
        quarantined, len(keys), bundles, _left(folder / "killed"),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundles", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--elements", type=int, default=64)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=None, help="of the moments; printed in any case")
    parser.add_argument("--ray", action="store_true", help="on a Ray cluster of this host")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("words", nargs="*", help="options of `spool-check reprocess`, after --")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if args.seed is None else args.seed
    print(f"seed {seed}", file=sys.stderr)
    chance = random.Random(seed)
    random.seed(seed)
    if not args.json:
        print(
            "| bundles | ranks | steps | s | CPU µs for each one more | peak MiB | kills | runs | quarantined, retried | rows |"
        )
        print(f"{'|---' * 10}|")
    cluster = RayCluster() if args.ray else None
    try:
        run_all(args, chance, seed, cluster)
    finally:
        if cluster:
            cluster.close()


def run_all(args: argparse.Namespace, chance: random.Random, seed: int, cluster: RayCluster | None) -> None:
    """Every size in turn, printed as it comes."""
    last: Batch | None = None
    for bundles in args.bundles:
        folder = Path(tempfile.mkdtemp(prefix="spool-check-batch-"))
        try:
            found = measure(folder, args, bundles, chance, cluster)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if args.json:
            print(json.dumps({**asdict(found), "seed": seed}), flush=True)
        else:
            # What grows with the ranks and steps alone (processes, folders, CSV files) is in the first figure.
            grown = last and (found.cpu_s - last.cpu_s) / (found.bundles - last.bundles) * 1e6
            more = "" if grown is None else f"{grown:.0f}"
            print(
                f"| {found.bundles} | {found.ranks} | {found.steps} | {found.peaceful_s:.1f} | {more} | {found.peak_mib:.0f} "
                f"| {found.killed} | {found.runs} | {found.quarantined} | {found.rows} |", flush=True
            )  # fmt: skip
        last = found
        assert found.rows == found.calls, f"{found.calls} calls, {found.rows} rows"
        assert found.left == 0, f"{found.left} bundles are left"


if __name__ == "__main__":
    main()

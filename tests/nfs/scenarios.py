"""What must hold on real NFS, run inside the lab: the training on mount A, judging on mount B and on A, as different hosts.

python tests/nfs/scenarios.py flow crash pause      (or: full, on an export of 24 MiB)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from processes import environment, key_of, left_in, rows_of  # noqa: E402

A, B = Path(os.environ["NFS_A"]), Path(os.environ["NFS_B"])
CALLS = 300
STALE_S = 4.0


class Place:
    """A spool on the export, as both hosts see it, and folders of this machine for logs and results."""

    def __init__(self, name: str) -> None:
        (A / name).mkdir()
        self.on_a, self.on_b = A / name, B / name
        self.local = Path(tempfile.mkdtemp(prefix=f"{name}-", dir="/dev/shm"))
        self.log = self.local / "log"

    def train(self) -> subprocess.Popen[bytes]:
        """A training on A."""
        words = [self.on_a, 0, 0, CALLS, self.log, 1]
        return self._start("training", ROOT / "tests" / "support" / "torture_writer.py", *words)

    def read(self, host: str, spool: Path, *more: object) -> subprocess.Popen[bytes]:
        """A reader that says it is on `host`."""
        words = [
            "watch",
            spool,
            "--out",
            self.local / host,
            "--workers",
            0,
            "--device",
            "cpu",
            "--stale-after",
            STALE_S,
        ]
        return self._start(host, "-m", "spool_check", *words, *more)

    def _start(self, host: str, *words: object) -> subprocess.Popen[bytes]:
        command = ["unshare", "-u", "sh", "-c", 'hostname "$0" && exec "$@"', host, sys.executable, *map(str, words)]
        with (self.local / "output").open("ab") as output:
            return subprocess.Popen(command, env=environment(), stdout=output, stderr=output)

    def rows(self, *hosts: str) -> list[tuple[str, int, int, int]]:
        """Keys of the rows that these readers have written."""
        return [key_of(row) for row in rows_of(*(self.local / host for host in hosts))]

    def wait_for_rows(self, host: str, count: int) -> None:
        """Until a reader has written so many."""
        wait(f"{count} rows of {host}", lambda: len(self.rows(host)) >= count)

    def check(self, *hosts: str) -> None:
        """Every call has its row, no reader wrote one twice, nothing is left."""
        assert len(set(self.rows(*hosts))) == CALLS, f"{len(set(self.rows(*hosts)))} of {CALLS} calls have rows"
        for host in hosts:
            assert max(Counter(self.rows(host)).values(), default=0) <= 1, f"{host} wrote a row twice"
        assert {row["verdict"] for row in rows_of(*(self.local / host for host in hosts))} == {"pass"}
        wait("an empty spool on A", lambda: not left_in(self.on_a))


def wait(what: str, condition: Callable[[], bool], seconds: float = 120) -> None:
    """Until something holds; AssertionError when it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.1)


def flow() -> None:
    """Judged on B while it is trained on A; the reader ends by itself."""
    place = Place("flow")
    reader = place.read("two", place.on_b)
    training = place.train()
    assert training.wait(120) == 0
    assert reader.wait(120) == 0, "the reader did not end well"
    place.check("two")


def crash() -> None:
    """The reader on B is killed; the one on A takes its claims back by its silence, as of another host."""
    place = Place("crash")
    training = place.train()
    first = place.read("two", place.on_b)
    place.wait_for_rows("two", 20)
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = place.read("three", place.on_a)
    assert training.wait(120) == 0
    assert second.wait(180) == 0, "the second reader did not end well"
    place.check("two", "three")


def pause() -> None:
    """The reader on B is stopped past its lease and goes on later: it is fenced and writes nothing twice."""
    place = Place("pause")
    training = place.train()
    first = place.read("two", place.on_b)
    place.wait_for_rows("two", 20)
    first.send_signal(signal.SIGSTOP)
    second = place.read("three", place.on_a, "--follow")
    wait("all rows", lambda: len(set(place.rows("two", "three"))) == CALLS, 180)
    assert training.wait(60) == 0
    first.send_signal(signal.SIGCONT)
    assert first.wait(120) == 0, "the reader that was stopped did not end well"
    second.send_signal(signal.SIGINT)
    second.wait(60)
    place.check("two", "three")


def killed_training() -> None:
    """The training is killed: the reader ends by itself and says which session is incomplete."""
    place = Place("killed_training")
    training = place.train()
    reader = place.read("two", place.on_b)
    place.wait_for_rows("two", 20)
    training.send_signal(signal.SIGKILL)
    training.wait()
    assert reader.wait(120) == 0
    assert "incomplete: session" in (place.local / "output").read_text()
    wait("an empty spool", lambda: not left_in(place.on_a))


def full() -> None:
    """The export fills up: what cannot be kept whole is not seen at all, and there is room again once it is judged."""
    import torch

    from spool import Bundle, SessionInfo, SpoolFull, SpoolOptions, open_spool, read_bundle

    place = Place("full")
    x = torch.randn(2**18)
    published = refused = 0
    with open_spool(place.on_a, options=SpoolOptions(when_full="drop", reserve_bytes=0)) as spool:
        session = spool.open_session(SessionInfo("full", 0, "one", os.getpid(), "0", time.time()))
        for seq in range(40):
            bundle = Bundle.build(
                session="full", rank=0, step=0, seq=seq, api=f"Torch.neg.{seq}", phase="forward", args=(x,), kwargs={},
                result=-x, context={}, producer={"device": "npu:0"}, time=0.0,
            )  # fmt: skip
            try:
                kept = spool.publish(bundle)
            except SpoolFull:
                kept = False
            published += bool(kept)
            refused += not kept
        assert published, "nothing could be published"
        assert refused, "the export never filled up"
        names = left_in(place.on_b)
        assert len(names) == published, f"{len(names)} files, {published} were published"
        for name in names:
            read_bundle(place.on_b / name)
        assert not list(place.on_a.rglob(".*.tmp")), "half-written files are left"
        reader = place.read("two", place.on_b, "--follow")
        wait("the export to be drained", lambda: not left_in(place.on_a), 180)
        assert spool.publish(bundle), "there is room again, and nothing is published"
        session.close("closed", {"seen": 41, "published": published + 1})
        wait("the last one", lambda: not left_in(place.on_a))
        reader.send_signal(signal.SIGINT)
        reader.wait(60)
        assert len(set(place.rows("two"))) == published + 1


SCENARIOS: dict[str, Callable[[], None]] = {
    "flow": flow, "crash": crash, "pause": pause, "killed_training": killed_training, "full": full,
}  # fmt: skip


def main(names: list[str]) -> int:
    """Run scenarios, and say of each how it went."""
    failed = 0
    for name in names:
        start = time.monotonic()
        try:
            SCENARIOS[name]()
        except AssertionError as error:
            failed += 1
            print(f"FAIL {name}: {error}", flush=True)
            for output in Path("/dev/shm").glob(f"{name}-*/output"):
                print(output.read_text(errors="replace")[-3000:], flush=True)
        else:
            print(f"ok {name} ({time.monotonic() - start:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

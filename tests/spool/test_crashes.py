"""Real processes that are killed, stopped or race each other over one directory spool."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from spool_bundles import PLAIN, call, drain, files_below, taken
from spool_child import Child

from spool import Spool, open_spool, purge
from spool.process import is_gone, this_process

Start = Callable[..., Child]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    children: list[Child] = []

    def begin(stale_after: float = 30.0, boot: str = "") -> Child:
        children.append(Child(tmp_path, stale_after=stale_after, boot=boot))
        return children[-1]

    yield begin
    for child in children:
        child.signal(signal.SIGCONT) if child._process.poll() is None else None
        child.kill()


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with open_spool(tmp_path, options=replace(PLAIN, stale_after=1.0)) as opened:
        yield opened


def taken_back(spool: Spool, within: float) -> tuple[int, int, float]:
    """seq and attempt of the next bundle, and how long it took to come."""
    started = time.monotonic()
    claim = taken(spool, within)
    assert claim.done()
    return claim.seq, claim.attempt, time.monotonic() - started


def test_races_between_processes_have_one_winner_each(spool: Spool, start: Start) -> None:
    writers, readers = [start(), start()], [start(), start()]
    for child in writers + readers:
        assert child.answer() == ["ready"]
    for reader in readers:
        reader.tell("drain", 3)
    for rank, writer in enumerate(writers):
        writer.tell("publish", 0, 200, rank)
    mine = [f"{rank}.{seq}" for _, rank, _, seq in drain(spool, timeout=3)]
    found = mine + [word for reader in readers for word in reader.answer()]
    assert sorted(found) == sorted(f"{rank}.{seq}" for rank in (0, 1) for seq in range(200))
    assert spool.stats().ready == spool.stats().claimed == spool.stats().quarantined == 0
    for child in writers + readers:
        assert child.end() == 0


def test_a_killed_consumer_of_this_host_is_noticed_at_once(spool: Spool, start: Start) -> None:
    child = start(stale_after=600)
    child.answer()
    for seq in range(3):
        spool.publish(call(seq))
    assert [child.ask("claim") for _ in range(2)] == [["0", "0"], ["1", "0"]]
    child.kill()
    found = sorted(taken_back(spool, 5)[:2] for _ in range(3))
    assert found == [(0, 1), (1, 1), (2, 0)]


def test_a_killed_consumer_of_another_host_is_noticed_by_its_silence(
    spool: Spool, start: Start, tmp_path: Path
) -> None:
    child = start(stale_after=1.0, boot="another-host")
    child.answer()
    spool.publish(call(0))
    assert child.ask("claim") == ["0", "0"]
    assert spool.claim(2.5) is None, "taken back from a consumer that lives"
    child.kill()
    seq, attempt, seconds = taken_back(spool, 10)
    assert (seq, attempt) == (0, 1)
    assert 0.2 < seconds < 5
    assert [name for name in files_below(tmp_path) if name.startswith("consumers/")] == [
        f"consumers/{spool._consumer.own}.json"  # type: ignore[attr-defined]
    ]


def test_a_stopped_consumer_is_fenced_and_goes_on_anew(spool: Spool, start: Start) -> None:
    child = start(stale_after=1.0, boot="another-host")
    child.answer()
    spool.publish(call(0))
    assert child.ask("claim") == ["0", "0"]
    (before,) = child.ask("own")
    child.signal(signal.SIGSTOP)
    assert taken_back(spool, 10)[:2] == (0, 1)
    child.signal(signal.SIGCONT)
    assert child.ask("done") == ["False"]
    spool.publish(call(1))
    assert child.ask("claim", 5) == ["1", "0"]
    (after,) = child.ask("own")
    assert before.rsplit(".", 1) == [after.rsplit(".", 1)[0], "1"]
    assert after.endswith(".2")
    assert child.ask("done") == ["True"]
    assert child.end() == 0


def test_a_bundle_that_kills_its_readers_is_set_aside_before_it_is_opened(
    spool: Spool, start: Start, tmp_path: Path
) -> None:
    spool.publish(call(0))
    for attempt in range(3):
        child = start()
        child.answer()
        assert child.ask("claim", 5) == ["0", str(attempt)]
        child.kill()
    spool.publish(call(1))
    assert [seq for *_, seq in drain(spool, timeout=2)] == [1]
    names = [name for name in files_below(tmp_path) if name.startswith("quarantine/")]
    assert names == [
        "quarantine/rank0/step0/00000000.Torch.add.0.try3.json",
        "quarantine/rank0/step0/00000000.Torch.add.0.try3.safetensors",
    ]
    assert "3 attempts failed" in (tmp_path / names[0]).read_text()


def test_a_writer_killed_within_a_file_leaves_nothing_to_see(spool: Spool, start: Start, tmp_path: Path) -> None:
    child = start()
    child.answer()
    child.ask("publish", 0, 1, 0)
    assert child.ask("die-in-write") == []
    assert child.end() == -signal.SIGKILL
    assert spool.stats().ready == 1
    assert [seq for *_, seq in drain(spool)] == [0]
    (debris,) = [name for name in files_below(tmp_path) if name.endswith(".tmp")]
    assert purge(tmp_path, dry_run=True).temporaries == ()
    report = purge(tmp_path, grace=0.0, dry_run=True)
    assert report.temporaries == (debris,)
    assert [name.split("/")[0] for name in report.sessions] == ["rank0"]
    assert (tmp_path / debris).exists()
    assert [record.state for record in spool.sessions()] == ["open"]
    purge(tmp_path, grace=0.0)
    assert not (tmp_path / debris).exists()
    assert [record.state for record in spool.sessions()] == ["failed"]


def test_purge_leaves_the_living_alone(spool: Spool, start: Start, tmp_path: Path) -> None:
    alive, dead = start(stale_after=1.0, boot="another-host"), start()
    alive.answer(), dead.answer()
    for seq in range(3):
        spool.publish(call(seq))
    assert alive.ask("claim") == ["0", "0"]
    assert dead.ask("claim") == ["1", "0"]
    claim = taken(spool)
    assert claim.seq == 2
    dead.kill()
    report = purge(tmp_path, stale_after=1.0)
    assert [name.split("/")[-1] for name in report.claims] == ["r0.t0.00000001.Torch.add.1.safetensors"]
    assert len(report.consumers) == 1
    assert alive.ask("done") == ["True"]
    assert claim.done() is True
    assert taken_back(spool, 0)[:2] == (1, 1)


def test_only_a_process_that_must_be_visible_here_can_be_seen_to_have_ended() -> None:
    own = this_process()
    assert own["host"] == socket.gethostname()
    assert own["pid"] == os.getpid()
    assert not is_gone(own)
    ended = {**own, "start": "1"}
    assert is_gone(ended)
    for field in ("boot", "namespace"):
        assert not is_gone({**ended, field: "other"})
        assert not is_gone({**ended, field: ""})
    assert not is_gone({})
    assert not is_gone({**ended, "pid": "7"})

"""Whatever is cut, killed or full: nothing is lost, nothing comes twice, and a session that has gone is reported."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lan_child import Peer, land
from lan_proxy import CuttingProxy
from spool_bundles import PLAIN, call, drain, info

from spool import SessionRecord, SpoolUnavailable, open_spool
from spool.lan import Receiver, SenderLimits, SocketSpool, landing
from spool.lan.landing import Landing

Receive = Callable[..., Receiver]
# A sender that tries again soon.
QUICK = SenderLimits(retry=(0.01, 0.05))


def keys(folder: Path) -> list[tuple[str, int, int, int]]:
    with open_spool(folder, options=PLAIN) as spool:
        return drain(spool)


def wait_for(condition: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("seed", range(3))
def test_connections_cut_anywhere(receive: Receive, tls: str, tmp_path: Path, seed: int) -> None:
    """A reader claims and deletes all the while: a bundle that came twice could not hide behind its own file."""
    chance = random.Random(seed)
    proxy = CuttingProxy(receive(tls).address, lambda: chance.choice([100, 3000, 30_000, 300_000, 10**7]))
    found: list[int] = []
    with (
        SocketSpool(proxy.url, tls_path=tls, limits=QUICK) as sender,
        open_spool(tmp_path / "spool", options=PLAIN) as spool,
    ):
        session = sender.open_session(info())
        for seq in range(200):
            sender.publish(call(seq, torch.full((chance.choice([1, 100, 30_000]),), float(seq))))
            found += [key[3] for key in drain(spool)] if seq % 10 == 0 else []
        session.close("closed", {"published": 200})
        found += [key[3] for key in drain(spool)]
        assert [record.state for record in spool.sessions()] == ["closed"]
    proxy.close()
    assert proxy.cuts >= 1
    assert found == list(range(200))


def test_the_receiver_is_killed_and_started_again(tls: str, tmp_path: Path) -> None:
    """kill -9 while bundles come in, several times, on one port; bundles are claimed in between."""
    folder = tmp_path / "spool"
    receiver = Peer("receive", spool=str(folder), tls=tls)
    url = receiver.line()
    port = int(url.rsplit(":", 1)[1])
    found: list[int] = []
    sender = SocketSpool(url, tls_path=tls, limits=QUICK)
    session = sender.open_session(info())
    for part in range(4):
        for seq in range(100 * part, 100 * part + 100):
            assert sender.publish(call(seq, torch.full((20_000,), 1.0)))
        if part < 3:
            # In the middle of what is on its way.
            wait_for(lambda: sender.stats().ready < 100)
            receiver.kill()
            with open_spool(folder, options=PLAIN) as spool:
                found += [key[3] for key in drain(spool)]
            receiver = Peer("receive", spool=str(folder), tls=tls, port=port)
            assert receiver.line() == url
    session.close("closed", {"published": 400})
    sender.close()
    assert receiver.end() == 0
    with open_spool(folder, options=PLAIN) as spool:
        found += [key[3] for key in drain(spool)]
        assert [record.state for record in spool.sessions()] == ["closed"]
    assert found == list(range(400))


def test_a_killed_sender_leaves_a_failed_session(receive: Receive, tmp_path: Path) -> None:
    url = receive(lost_after=1.0).url
    sender = Peer("send", url=url, count=10**6, elements=1000)
    assert sender.line() == "first"
    time.sleep(0.2)
    sender.kill()
    with open_spool(tmp_path / "spool", options=PLAIN) as spool:
        wait_for(lambda: spool.sessions()[0].state == "failed")
        seqs = [key[3] for key in drain(spool)]
    assert seqs == list(range(len(seqs)))
    assert len(seqs) > 1


def test_a_session_lives_on_between_two_connections(receive: Receive, tmp_path: Path) -> None:
    """Its record is renewed for as long as it may come back, so that no reader takes its writer for dead."""
    receive_again = receive(lost_after=30.0)
    proxy = CuttingProxy(receive_again.address, lambda: 2000)
    limits = SenderLimits(retry=(60, 60), close=0.1)
    with (
        open_spool(tmp_path / "spool", options=PLAIN) as spool,
        SocketSpool(proxy.url, tls_path="", limits=limits) as sender,
    ):
        sender.open_session(info())
        for seq in range(10):
            sender.publish(call(seq))
        wait_for(lambda: proxy.cuts)
        first: SessionRecord = spool.sessions()[0]
        wait_for(lambda: spool.sessions()[0].beat > first.beat)
        assert spool.sessions()[0].state == "open"
    proxy.close()


def test_a_failed_session_goes_on_when_its_sender_comes_back(receive: Receive, tmp_path: Path) -> None:
    receiver = receive(lost_after=0.2)
    proxy = CuttingProxy(receiver.address, iter([2000, 10**9]).__next__)
    with open_spool(tmp_path / "spool", options=PLAIN) as spool:
        with SocketSpool(proxy.url, tls_path="", limits=SenderLimits(retry=(2, 2))) as sender:
            session = sender.open_session(info())
            for seq in range(10):
                sender.publish(call(seq))
            wait_for(lambda: spool.sessions()[0].state == "failed")
            session.close("closed", {})
        assert spool.sessions()[0].state == "closed"
        assert [key[3] for key in drain(spool)] == list(range(10))
    proxy.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_makes_the_sender_wait(receive: Receive, small_disk: Path) -> None:
    """The check for room knows nothing here, as on a share with quotas: the write itself fails."""
    receiver = receive(folder=small_disk / "spool")
    with SocketSpool(receiver.url, tls_path="", limits=QUICK) as sender:
        session = sender.open_session(info())
        for seq in range(8):
            assert sender.publish(call(seq, torch.zeros(2**18)))
        wait_for(lambda: sender.stats().ready <= 5)
        time.sleep(0.5)
        assert sender.stats().ready >= 4, "no more than the disk holds was acknowledged"
        found: list[int] = []
        deadline = time.monotonic() + 30
        with open_spool(small_disk / "spool", options=PLAIN) as spool:
            while len(found) < 8 and time.monotonic() < deadline:
                found += [key[3] for key in drain(spool)]
                time.sleep(0.02)
        session.close("closed", {})
    assert found == list(range(8))


def landed(root: Path) -> Landing:
    return Landing(root, info(), PLAIN, None)


# Where the receiver dies while it lands bundle 2, and how many have landed then.
DEATHS = {"before the state": ("pwrite", 1), "before the rename": ("rename", 1), "after the rename": ("nowhere", 2)}


@pytest.mark.parametrize("name", DEATHS)
def test_a_kill_at_each_step_is_seen_at_the_next_start(name: str, tmp_path: Path) -> None:
    where, expected = DEATHS[name]
    assert Peer("land", spool=str(tmp_path), die_in=where).end() == -signal.SIGKILL
    assert landed_number(tmp_path) == expected
    assert not list((tmp_path / "lan").glob("*.part"))
    assert len(list(tmp_path.rglob("*.safetensors"))) == expected


def test_a_rename_that_fails_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    into = landed(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(landing.files, "rename", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        with pytest.raises(SpoolUnavailable, match="Input/output error"):
            land(into, 1)
    into.close()
    again = landed(tmp_path)
    assert again.landed == 0
    land(again, 1)
    again.close()
    assert landed_number(tmp_path) == 1


def landed_number(root: Path) -> int:
    into = landed(root)
    into.close()
    return into.landed


def test_a_step_folder_that_a_reader_removed_is_made_again(tmp_path: Path) -> None:
    into = landed(tmp_path)
    land(into, 1)
    next(tmp_path.rglob("*.safetensors")).unlink()
    (tmp_path / "rank0" / "step0").rmdir()
    land(into, 2)
    into.close()
    assert [path.name for path in tmp_path.rglob("*.safetensors")] == ["00000002.Torch.add.2.safetensors"]


def test_a_closed_session_is_known_after_a_restart(receive: Receive, tmp_path: Path) -> None:
    receiver = receive()
    for _ in range(2):
        with SocketSpool(receiver.url, tls_path="") as sender:
            session = sender.open_session(info())
            session.close("closed", {"seen": 1})
        receiver.stop()
        receiver = receive()
        with open_spool(tmp_path / "spool", options=PLAIN) as spool:
            assert [record.state for record in spool.sessions()] == ["closed"]

"""What is published on one side is claimed on the other: whole, once, in order; and sessions end as they did."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from lan_child import Peer
from spool_bundles import PLAIN, call, drain, info, taken

from spool import ConfigError, SpoolError, SpoolFull, SpoolOptions, SpoolUnavailable, open_spool, purge
from spool.lan import Receiver, SenderLimits, SocketSpool

Receive = Callable[..., Receiver]


def keys(folder: Path) -> list[tuple[str, int, int, int]]:
    with open_spool(folder, options=PLAIN) as spool:
        return drain(spool)


def test_the_same_bytes_land(receive: Receive, tls: str, tmp_path: Path) -> None:
    bundle = call(7, torch.randn(3, 5), torch.ones(4, dtype=torch.complex64), rank=2, step=9)
    with open_spool(receive(tls).url, tls_path=tls) as sender:
        session = sender.open_session(info(rank=2))
        assert sender.publish(bundle) is True
        session.close("closed", {"seen": 5, "published": 1})
    with open_spool(tmp_path / "spool", options=PLAIN) as spool:
        claim = taken(spool)
        assert (claim.rank, claim.step, claim.seq, claim.api) == (2, 9, 7, "Torch.add.7")
        loaded = claim.load()
        assert torch.equal(loaded.args[0], bundle.args[0])
        assert torch.equal(loaded.args[1], bundle.args[1])
        (record,) = spool.sessions()
        assert (record.state, record.rank, dict(record.counts)) == ("closed", 2, {"seen": 5, "published": 1})
        assert (record.host, record.pid) == ("h", 1)


def test_thousands_of_small_bundles_from_several_ranks(tls: str, tmp_path: Path) -> None:
    """Four processes: a receiver and three ranks."""
    folder, count = tmp_path / "spool", 1500
    receiver = Peer("receive", spool=str(folder), tls=tls)
    url = receiver.line()
    senders = [Peer("send", url=url, tls=tls, rank=rank, count=count, session=f"s{rank}") for rank in range(3)]
    assert [sender.end() for sender in senders] == [0, 0, 0]
    assert receiver.end() == 0
    found = keys(folder)
    assert len(found) == 3 * count
    for rank in range(3):
        assert [key[3] for key in found if key[1] == rank] == list(range(count))


def test_large_bundles(receive: Receive, tls: str, tmp_path: Path) -> None:
    send_large(receive, tls, tmp_path, elements=4 * 2**20, count=3)


@pytest.mark.slow
def test_very_large_bundles(receive: Receive, tls: str, tmp_path: Path) -> None:
    send_large(receive, tls, tmp_path, elements=64 * 2**20, count=3)


def send_large(receive: Receive, tls: str, tmp_path: Path, *, elements: int, count: int) -> None:
    url = receive(tls).url
    # A window smaller than one bundle: each goes alone.
    with SocketSpool(url, tls_path=tls, limits=SenderLimits(window_bytes=1000)) as sender:
        session = sender.open_session(info())
        for seq in range(count):
            assert sender.publish(call(seq, torch.arange(elements, dtype=torch.int32) + seq))
        session.close("closed", {})
    with open_spool(tmp_path / "spool", options=PLAIN) as spool:
        for seq in range(count):
            claim = taken(spool)
            assert claim.load().args[0][-1].item() == elements - 1 + seq
            claim.done()
        assert spool.claim() is None


def test_several_threads_publish_into_one_session(receive: Receive, tls: str, tmp_path: Path) -> None:
    with open_spool(receive(tls).url, tls_path=tls) as sender:
        session = sender.open_session(info())

        def publish(first: int) -> None:
            for seq in range(first, 400, 4):
                sender.publish(call(seq))

        threads = [threading.Thread(target=publish, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        session.close("closed", {})
    assert sorted(key[3] for key in keys(tmp_path / "spool")) == list(range(400))


def test_a_second_session_of_a_rank_has_names_of_its_own(receive: Receive, tmp_path: Path) -> None:
    url = receive().url
    for name in ("s1", "s2"):
        with open_spool(url, tls_path="") as sender:
            session = sender.open_session(info(name))
            sender.publish(call(0, session=name))
            session.close("closed", {})
    assert sorted(key[0] for key in keys(tmp_path / "spool")) == ["s1", "s2"]


def test_heartbeats_reach_the_record(receive: Receive, tmp_path: Path) -> None:
    receiver = receive()
    with SocketSpool(receiver.url, tls_path="", limits=SenderLimits(heartbeat=0.1)) as sender:
        session = sender.open_session(info())
        session.heartbeat({"seen": 41})
        with open_spool(tmp_path / "spool", options=PLAIN) as spool:
            deadline = time.monotonic() + 10
            while not (found := spool.sessions()[0]).counts and time.monotonic() < deadline:
                time.sleep(0.05)
            assert (found.state, dict(found.counts)) == ("open", {"seen": 41})
            time.sleep(0.5)
            assert spool.sessions()[0].beat > found.beat


def test_a_receiver_without_room_makes_the_sender_wait_or_drop(tmp_path: Path) -> None:
    options = SpoolOptions(reserve_bytes=0, max_pending_bundles=5)
    with Receiver("127.0.0.1", 0, tmp_path / "spool", tls_path="", options=options) as receiver:
        limits = SenderLimits(window_bundles=3)
        drops = SpoolOptions(when_full="drop")
        with SocketSpool(receiver.url, tls_path="", limits=limits, options=drops) as sender:
            session = sender.open_session(info())
            kept = []
            for seq in range(12):
                kept.append(sender.publish(call(seq)))
                time.sleep(0.05)
            assert kept.count(True) >= 8, "five land, three wait in the window"
            assert kept[-1] is False, "the rest is dropped"
            with open_spool(tmp_path / "spool", options=PLAIN) as spool:
                for _ in range(5):
                    taken(spool, 5).done()
                session.close("closed", {})
                assert len(drain(spool)) == kept.count(True) - 5


def test_block_waits_for_a_slow_reader(tmp_path: Path) -> None:
    options = SpoolOptions(reserve_bytes=0, max_pending_bundles=4)
    limits = SenderLimits(window_bundles=2)
    with (
        Receiver("127.0.0.1", 0, tmp_path / "spool", tls_path="", options=options) as receiver,
        SocketSpool(receiver.url, tls_path="", limits=limits) as sender,
    ):
        session = sender.open_session(info())
        found: list[int] = []

        def read() -> None:
            with open_spool(tmp_path / "spool", options=PLAIN) as spool:
                while len(found) < 30 and (claim := spool.claim(20)) is not None:
                    found.append(claim.seq)
                    claim.done()
                    time.sleep(0.01)

        reader = threading.Thread(target=read)
        reader.start()
        assert all(sender.publish(call(seq)) for seq in range(30))
        session.close("closed", {})
        reader.join()
    assert found == list(range(30))


def test_what_only_a_reader_may_do_says_so(receive: Receive) -> None:
    with open_spool(receive().url, tls_path="") as sender:
        with pytest.raises(SpoolUnavailable, match=r"claim is not possible.*spool-check watch tcp://"):
            sender.claim()
        with pytest.raises(SpoolUnavailable, match="session s1 is not open"):
            sender.publish(call())


def test_a_bundle_beyond_the_limit_is_refused_before_it_is_sent(receive: Receive, tmp_path: Path) -> None:
    with open_spool(receive(max_bundle=5000).url, tls_path="") as sender:
        session = sender.open_session(info())
        with pytest.raises(SpoolFull, match="the receiver accepts 5000"):
            sender.publish(call(0, torch.zeros(5000)))
        assert sender.publish(call(1))
        session.close("closed", {})
    assert [key[3] for key in keys(tmp_path / "spool")] == [1]


def test_no_receiver_is_said_at_once(receive: Receive) -> None:
    receiver = receive()
    url = receiver.url
    receiver.stop()
    sender = SocketSpool(url, tls_path="", limits=SenderLimits(connect=0.3))
    with sender, pytest.raises(SpoolUnavailable, match=r"refused.*start `spool-check watch"):
        sender.open_session(info())


def test_a_receiver_that_never_comes_back_costs_calls_but_no_training(receive: Receive) -> None:
    receiver = receive()
    limits = SenderLimits(close=0.5, window_bundles=4)
    with SocketSpool(receiver.url, tls_path="", limits=limits, options=SpoolOptions(block_timeout=0.1)) as sender:
        session = sender.open_session(info())
        receiver.stop()
        assert [sender.publish(call(seq)) for seq in range(7)].count(False) == 3
        with pytest.raises(SpoolError, match="4 calls did not arrive"):
            session.close("closed", {})


URLS = {
    "no port": "tcp://10.0.0.1",
    "a path": "tcp://10.0.0.1:1/x",
    "a port too large": "tcp://10.0.0.1:99999",
    "a user": "tcp://me@10.0.0.1:1",
    "a broken IPv6 address": "tcp://[::1:5",
}


@pytest.mark.parametrize("name", URLS)
def test_addresses_are_checked(name: str) -> None:
    with pytest.raises(ConfigError, match=r"tcp://HOST:PORT"):
        open_spool(URLS[name], tls_path="")


def test_a_plain_receiver_without_a_host_listens_to_this_host_alone(tmp_path: Path) -> None:
    with Receiver("", 0, tmp_path / "spool", tls_path="", options=PLAIN) as receiver:
        assert receiver.address[0] == "127.0.0.1"


def test_a_plain_receiver_on_an_open_address_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Receiver("0.0.0.0", 0, tmp_path / "spool", tls_path="", options=PLAIN):
        assert "everybody who reaches this address can send" in caplog.text


def test_an_address_in_use_is_said(receive: Receive, tmp_path: Path) -> None:
    host, port = receive().address
    with pytest.raises(SpoolUnavailable, match=r"cannot listen there: Address already in use"):
        Receiver(host, port, tmp_path / "other", tls_path="", options=PLAIN).start()


def test_purge_removes_the_state_of_a_closed_session_whose_bundles_are_gone(receive: Receive, tmp_path: Path) -> None:
    spool_dir = tmp_path / "spool"
    receiver = receive()
    with SocketSpool(receiver.url, tls_path="") as sender:
        closed, still_open = sender.open_session(info("closed", 0)), sender.open_session(info("open", 1))
        sender.publish(call(0, session="closed"))
        closed.close("closed", {})
        state = "lan/rank0.closed.state"
        assert purge(spool_dir, grace=0.0, stale_after=0.2).states == ()
        with open_spool(spool_dir, options=PLAIN) as spool:
            drain(spool)
        assert purge(spool_dir, stale_after=0.2).states == ()
        assert purge(spool_dir, grace=0.0, stale_after=0.2, dry_run=True).states == (state,)
        assert (spool_dir / state).exists()
        assert purge(spool_dir, grace=0.0, stale_after=0.2).states == (state,)
        assert [path.name for path in (spool_dir / "lan").iterdir()] == ["rank1.open.state"]
        still_open.close("closed", {})

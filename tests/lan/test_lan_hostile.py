"""Peers that break every rule: each is refused in words, nothing leaves the spool, and its neighbours notice nothing."""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lan_hands import answer, connected, frame, refusal
from spool_bundles import PLAIN, call, drain, info

from spool import dump_bundle, open_spool
from spool.lan import Receiver, SocketSpool, frames
from spool.lan.frames import Kind

Receive = Callable[..., Receiver]


@contextmanager
def neighbour(receiver: Receiver, folder: Path) -> Iterator[None]:
    """A proper sender that is at work while others misbehave; in the end its bundles and no others are in the spool."""
    with SocketSpool(receiver.url, tls_path="") as sender:
        session = sender.open_session(info("good", 5))
        for seq in range(5):
            sender.publish(call(seq, session="good", rank=5))
        yield
        for seq in range(5, 10):
            sender.publish(call(seq, session="good", rank=5))
        session.close("closed", {})
    with open_spool(folder, options=PLAIN) as spool:
        assert drain(spool) == [("good", 5, 0, seq) for seq in range(10)]


BAD_FIRST: dict[str, tuple[bytes, str]] = {
    "random bytes": (os.urandom(64), "starts with"),
    "zeros": (bytes(64), "starts with"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "starts with"),
    "a pickle": (pickle.dumps({"x": 1}) + bytes(64), "starts with"),
    "a bundle before hello": (frame(1), "BUNDLE before HELLO"),
    "another protocol": (frames.hello(info()).replace(b'"protocol":1', b'"protocol":7'), "protocol 7"),
    "a session that leaves the spool": (frames.hello(info()).replace(b'"s1"', b'".."'), "session"),
    "a huge hello": (frames.head(Kind.HELLO, 2**50), "at most"),
}


@pytest.mark.parametrize("name", BAD_FIRST)
def test_bad_first_bytes(receive: Receive, tmp_path: Path, name: str) -> None:
    data, text = BAD_FIRST[name]
    receiver = receive()
    with neighbour(receiver, tmp_path / "spool"), connected(receiver.address, session=None) as sock:
        sock.sendall(data)
        assert text in refusal(sock)


BAD_LATER: dict[str, tuple[bytes, str]] = {
    "a wrong digest": (frame(1, digest=5), "another digest"),
    "an API name with a path": (frame(1, api="../../../../tmp/x.0"), "must look like"),
    "an absolute API name": (frame(1, api="/tmp/x.0"), "must look like"),
    "another session in the bundle": (frame(1, session="other"), "its own header says"),
    "another rank in the bundle": (frame(1, rank=3), "its own header says"),
    "another seq in the bundle": (frame(1, data=dump_bundle(call(2))), "its own header says"),
    "another API in the bundle": (frame(1, api="Torch.mul.1"), "its own header says"),
    "a header beyond the limit": (frame(1, data=(2**25).to_bytes(8, "little") + bytes(2**25)), "allow"),
    "a length beyond the limit": (frames.bundle_head(1, 0, 0, "Torch.add.0", 0, 2**40), "the receiver's limit"),
    "the largest length": (frames.head(Kind.BUNDLE, 2**64 - 1) + frame(1)[16:], "the receiver's limit"),
    "a body shorter than its head": (frames.head(Kind.BUNDLE, 3) + b"abc", "its head alone"),
    "a name longer than the body": (
        frames.head(Kind.BUNDLE, 26) + frame(1)[16:40] + b"\xff\xff",
        "with an API name of",
    ),
    "a second hello": (frames.hello(info()), "HELLO from a sender"),
    "an answer": (frames.ack(3), "ACK from a sender"),
    "a close that is none": (frames.control(Kind.CLOSE, {"state": "won", "counts": {}}), "closed or failed"),
    "rubbish between frames": (b"\0" * 40, "starts with"),
}


@pytest.mark.parametrize("name", BAD_LATER)
def test_bad_frames_in_a_session(receive: Receive, tmp_path: Path, name: str) -> None:
    data, text = BAD_LATER[name]
    receiver = receive(max_bundle=2**30)
    outside = set(tmp_path.iterdir())
    with neighbour(receiver, tmp_path / "spool"), connected(receiver.address) as sock:
        sock.sendall(data)
        assert text in refusal(sock)
    assert set(tmp_path.iterdir()) <= outside | {tmp_path / "spool"}
    assert not list((tmp_path / "spool" / "lan").glob("*.part"))


def test_a_frame_that_ends_in_the_middle(receive: Receive, tmp_path: Path) -> None:
    receiver = receive()
    with neighbour(receiver, tmp_path / "spool"), connected(receiver.address) as sock:
        sock.sendall(frame(1)[:-10])


def test_what_is_no_bundle_is_refused_and_never_executed(receive: Receive, tmp_path: Path) -> None:
    proof = tmp_path / "executed"

    class Payload:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {proof}",)

    with connected(receive().address) as sock:
        sock.sendall(frame(1, data=pickle.dumps(Payload())))
        assert "none that can be judged" in refusal(sock)
    with open_spool(tmp_path / "spool", options=PLAIN) as spool:
        assert spool.claim(0.2) is None
    assert not proof.exists()


def test_a_bundle_that_comes_again_is_acknowledged_again(receive: Receive, tmp_path: Path) -> None:
    address = receive().address
    for _ in range(3):
        with socket.create_connection(address, timeout=10) as sock:
            sock.sendall(frames.hello(info()) + frame(1) + frame(2))
            assert answer(sock)[0] is Kind.WELCOME
            numbers = []
            while not numbers or numbers[-1] < 2:
                numbers.append(frames.parse_ack(answer(sock)[1]))
        with open_spool(tmp_path / "spool", options=PLAIN) as spool:
            drain(spool)
    with open_spool(tmp_path / "spool", options=PLAIN) as spool:
        assert spool.stats().ready == 0


def test_nothing_follows_a_close(receive: Receive, tmp_path: Path) -> None:
    with connected(receive().address) as sock:
        sock.sendall(frames.close("closed", {}))
        assert [answer(sock)[0], answer(sock)[0]] == [Kind.ACK, Kind.CLOSED]
        sock.sendall(frame(1))
        assert "is closed; nothing may follow" in refusal(sock)


def test_a_session_has_one_connection_the_newest(receive: Receive, tmp_path: Path) -> None:
    address = receive().address
    with connected(address) as first, connected(address) as second:
        assert first.recv(1) == b""
        second.sendall(frame(1))
        assert answer(second)[0] is Kind.ACK


SLOW: dict[str, Callable[[socket.socket], None]] = {
    "silent": lambda sock: None,
    "a byte now and then": lambda sock: [(sock.sendall(b"S"), time.sleep(0.05)) for _ in range(100)] and None,
    "half a head": lambda sock: sock.sendall(b"SCL1\x01"),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_slow_peer_loses_its_connection_before_hello(receive: Receive, tls: str, name: str) -> None:
    receiver = receive(tls, handshake=0.4)
    started = time.monotonic()
    with (
        socket.create_connection(receiver.address, timeout=10) as sock,
        suppress(ConnectionResetError, BrokenPipeError),
    ):
        SLOW[name](sock)
        while sock.recv(1000):
            pass
    assert time.monotonic() - started < 5


def test_a_slow_frame_loses_its_connection(receive: Receive, tmp_path: Path) -> None:
    """Every byte comes in time, and yet the frame does not come to an end."""
    receiver = receive(idle=0.3, least_rate=10**6)
    data = frame(1)
    with neighbour(receiver, tmp_path / "spool"), connected(receiver.address) as sock:
        sent = 0
        with suppress(ConnectionResetError, BrokenPipeError):
            while sent < len(data):
                sock.sendall(data[sent : sent + 1])
                sent += 1
                time.sleep(0.02)
        assert 0 < sent < len(data)


def test_no_more_connections_than_the_limit(receive: Receive) -> None:
    receiver = receive(connections=3)
    address = receiver.address
    with (
        connected(address, session="a"),
        connected(address, session="b"),
        connected(address, session="c"),
        socket.create_connection(address, timeout=10) as sock,
    ):
        assert sock.recv(1) == b""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            with connected(address, session="d"):
                return
        except (EOFError, ConnectionResetError):
            time.sleep(0.05)
    pytest.fail("the slots of ended connections were not given back")


def test_no_more_sessions_than_the_limit(receive: Receive) -> None:
    address = receive(sessions=2).address
    for name in ("a", "b", "a"):
        with connected(address, session=name):
            pass
    with connected(address, session=None) as sock:
        sock.sendall(frames.hello(info("c")))
        assert "has seen 2 sessions" in refusal(sock)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    folder = tmp_path_factory.mktemp("fuzzed")
    with Receiver("127.0.0.1", 0, folder / "spool", tls_path="", options=PLAIN) as receiver:
        yield receiver
        with open_spool(folder / "spool", options=PLAIN) as spool:
            # It still works, and nothing but bundles of the spool was written.
            with connected(receiver.address, session="last", rank=77) as sock:
                sock.sendall(frame(1, session="last", rank=77))
                assert answer(sock)[0] is Kind.ACK
            assert spool.claim(5, ranks=[77]) is not None
        assert [path.name for path in folder.iterdir()] == ["spool"]


# A number stands for the session's own bundle of that number.
PIECES = st.sampled_from(
    [1, 2, frame(1), frame(1)[:50], frames.hello(info()), frames.heartbeat({"seen": 1}), frames.close("closed", {}),
     frames.ack(1), frames.head(Kind.BUNDLE, 60), b"SCL1"]
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.booleans(), parts=st.lists(PIECES | st.binary(max_size=60), max_size=6), flip=st.integers(0, 2000))
def test_random_streams_end_one_connection_at_most(
    shared: Receiver, first: bool, parts: list[bytes | int], flip: int
) -> None:
    name = f"x{flip}"
    whole = [frame(part, session=name) if isinstance(part, int) else part for part in parts]
    data = bytearray((frames.hello(info(name)) if first else b"") + b"".join(whole))
    if data and flip % 3 == 0:
        data[flip % len(data)] ^= 1 << flip % 8
    with socket.create_connection(shared.address, timeout=10) as sock, suppress(OSError):
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass

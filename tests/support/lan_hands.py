"""A sender by hand: sends what no proper sender would."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import xxhash
from spool_bundles import call, info

from spool import dump_bundle
from spool.lan import frames
from spool.lan.frames import HEAD_SIZE, Kind


@contextlib.contextmanager
def connected(address: tuple[str, int], *, session: str | None = "s1", rank: int = 0) -> Iterator[socket.socket]:
    """A plain connection; with a session's HELLO said and WELCOME heard unless `session` is None."""
    with socket.create_connection(address, timeout=10) as sock:
        if session is not None:
            sock.sendall(frames.hello(info(session, rank)))
            assert answer(sock)[0] is Kind.WELCOME
        yield sock


def answer(sock: socket.socket) -> tuple[Kind, bytes]:
    """The next frame that the receiver sends."""
    kind, length = frames.parse_head(exactly(sock, HEAD_SIZE))
    return kind, exactly(sock, length)


def refusal(sock: socket.socket) -> str:
    """The reason that the receiver gives, and the end of the connection after it."""
    kind, body = answer(sock)
    assert kind is Kind.REFUSED
    assert sock.recv(1) == b""
    return frames.parse_refusal(body).reason


def exactly(sock: socket.socket, size: int) -> bytes:
    """So many bytes; EOFError when the connection ends before."""
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError(f"the connection ended after {len(data)} of {size} bytes")
        data += more
    return data


def frame(
    number: int,
    *,
    session: str = "s1",
    rank: int = 0,
    api: str | None = None,
    digest: int | None = None,
    data: bytes | None = None,
) -> bytes:
    """A whole BUNDLE frame."""
    data = dump_bundle(call(number, session=session, rank=rank)) if data is None else data
    digest = xxhash.xxh3_64_intdigest(data) if digest is None else digest
    return frames.bundle_head(number, 0, number, api or f"Torch.add.{number}", digest, len(data)) + data

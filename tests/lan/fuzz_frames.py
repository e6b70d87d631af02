"""Coverage-guided fuzzing of the frames and of a receiver's connection: `make fuzz [FUZZ_SECONDS=60]`.

Needs atheris, which pytest does not. A finding is any exception but a refusal, from the parsers or while a connection is
served, or a file outside the spool.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import tempfile
import threading
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["spool.lan"]):
    from spool.lan import frames
    from spool.lan.limits import ReceiverLimits
    from spool.lan.reading import Ended
    from spool.lan.serving import Connection
    from spool.lan.slots import Refused, Slots

from spool import SpoolOptions, open_spool
from spool.room import Room

PARSERS = (
    frames.parse_hello, frames.parse_welcome, frames.parse_ack, frames.parse_full, frames.parse_heartbeat,
    frames.parse_close, frames.parse_refusal, frames.parse_api,
)  # fmt: skip
HELLO = b'{"protocol":1,"session":"s","rank":0,"host":"h","pid":1,"version":"0","started":1.0}'


logging.getLogger("spool_check.lan").propagate = False
outside = Path(tempfile.mkdtemp())
spool = open_spool(outside / "spool", create=True, options=SpoolOptions(reserve_bytes=0))
limits = ReceiverLimits(handshake=2.0, idle=2.0, max_bundle=2**20, sessions=10**9)
room = Room(outside / "spool", spool.options, lambda rank: (0, 0))  # type: ignore[attr-defined]
connection = Connection(spool, room, Slots(limits), limits, lambda: False)  # type: ignore[arg-type]


def one(data: bytes) -> None:
    """The parsers by themselves, then the bytes as a connection, with a proper HELLO before them in half of the cases."""
    for parse in PARSERS:
        with contextlib.suppress(frames.ProtocolError):
            parse(data)
    near, far = socket.socketpair()
    thread = threading.Thread(target=_send, args=(near, data))
    thread.start()
    _serve(far)
    thread.join()
    if [path.name for path in outside.iterdir()] != ["spool"]:
        raise AssertionError(f"a file outside the spool: {sorted(outside.iterdir())}")


def _serve(sock: socket.socket) -> None:
    with sock, contextlib.suppress(Refused, frames.ProtocolError, Ended, OSError):
        sock.settimeout(2.0)
        connection._session(sock, "fuzzer")


def _send(sock: socket.socket, data: bytes) -> None:
    with sock, contextlib.suppress(OSError):
        start = frames.head(frames.Kind.HELLO, len(HELLO)) + HELLO if data[:1] > b"\x7f" else b""
        sock.sendall(start + data[1:])
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()

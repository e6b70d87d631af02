"""What the sender's thread does with its socket: one frame while it may block, and as much as goes when it may not."""

from __future__ import annotations

import socket
import ssl
from collections import deque

from .frames import HEAD_SIZE, MAX_CONTROL, Kind, ProtocolError, parse_head

_IOV = 256
# So much is sent before acknowledgements are looked at again.
_MOST = 4 * 1024 * 1024


def receive_control(sock: socket.socket) -> tuple[Kind, bytes]:
    """One control frame from a blocking socket."""
    kind, length = parse_head(_exactly(sock, HEAD_SIZE))
    if length > MAX_CONTROL:
        raise ProtocolError(f"is {kind.name} of {length} bytes")
    return kind, _exactly(sock, length)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def send_some(sock: socket.socket, out: deque[memoryview]) -> int:
    """Send what the socket takes at once, up to a limit, so that acknowledgements are read in between."""
    total = 0
    try:
        while out and total < _MOST:
            if isinstance(sock, ssl.SSLSocket):
                count = sock.send(out[0])
            else:
                count = sock.sendmsg([out[i] for i in range(min(len(out), _IOV))])
            total += count
            while out and count >= len(out[0]):
                count -= len(out.popleft())
            if count:
                out[0] = out[0][count:]
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        pass
    return total

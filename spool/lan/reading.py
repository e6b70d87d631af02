"""Reading frames from a blocking socket: bounded buffers, bounded patience."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator

from .frames import HEAD_SIZE, Kind, ProtocolError, parse_head

_BUFFER = 1024 * 1024


class Ended(Exception):
    """The peer closed the connection between two frames."""


class FrameReader:
    """Frames from a socket whose own timeout is the longest pause between two pieces of data.

    One frame may take `allowance` seconds and as long as its length needs at `least_rate`. Raises ProtocolError, OSError
    (TimeoutError among them) and Ended.
    """

    def __init__(self, sock: socket.socket, *, allowance: float, least_rate: int) -> None:
        self._sock, self._allowance, self._rate = sock, allowance, least_rate
        self._buffer = memoryview(bytearray(_BUFFER))
        self._start = self._end = 0
        self._deadline = float("inf")
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    @property
    def idle(self) -> bool:
        """Whether reading on means waiting for the network."""
        return self._empty and not self._poll.poll(0)

    @property
    def _empty(self) -> bool:
        return self._start == self._end

    def allow(self, allowance: float) -> None:
        """Give frames another allowance: after the handshake."""
        self._allowance = allowance

    def extend(self, size: int) -> None:
        """Give the frame in hand its time again, since its reader has kept it waiting."""
        self._deadline = time.monotonic() + self._allowance + size / self._rate

    def head(self) -> tuple[Kind, int]:
        """The next frame's kind and the length of its body; waits for its first byte as long as the socket does."""
        self._deadline = float("inf")
        if self._empty and not self._more():
            raise Ended
        self._deadline = time.monotonic() + self._allowance
        kind, length = parse_head(self.take(HEAD_SIZE))
        self._deadline += length / self._rate
        return kind, length

    def take(self, size: int) -> bytes:
        """Exactly so many bytes, of a small part of a frame."""
        while self._end - self._start < size:
            self._need()
        self._start += size
        return bytes(self._buffer[self._start - size : self._start])

    def pieces(self, size: int) -> Iterator[memoryview]:
        """So many bytes in pieces; each is valid until the next is asked for."""
        while size:
            if self._empty:
                self._need()
            piece = self._buffer[self._start : min(self._end, self._start + size)]
            self._start += len(piece)
            size -= len(piece)
            yield piece

    def _need(self) -> None:
        if not self._more():
            raise ProtocolError("ends in the middle: the connection was closed")

    def _more(self) -> int:
        """Receive what there is, behind what is still unread."""
        if time.monotonic() > self._deadline:
            raise TimeoutError("the frame came too slowly")
        if self._start:
            rest = self._end - self._start
            self._buffer[:rest] = self._buffer[self._start : self._end]
            self._start, self._end = 0, rest
        count = self._sock.recv_into(self._buffer[self._end :])
        self._end += count
        return count

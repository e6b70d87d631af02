"""One session's way to the receiver: a thread that connects, sends, listens, and begins again where it was.

Only this thread touches the socket, since two threads may not use one TLS connection. It is never blocked in a call: a poll
waits for the socket and for `wake`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Mapping

from ..errors import SpoolError, SpoolUnavailable
from ..interface import SessionInfo
from . import frames
from .address import url_of
from .frames import HEAD_SIZE, Kind, ProtocolError
from .limits import SenderLimits
from .tls import explain
from .window import Window
from .wire import receive_control, send_some

log = logging.getLogger("spool_check.lan")

_RECEIVE = 64 * 1024
# So much is gathered for one system call; what is smaller than a TLS record is copied together.
_GATHER_BUNDLES, _GATHER_BYTES, _SMALL = 64, 4 * 1024 * 1024, 16 * 1024
# A bundle that is refused so often on good connections never arrives.
_REFUSALS = 3


class Link(threading.Thread):
    """Carries a window to the receiver until `stop`; `error` says why it is not connected, `fatal` that it never will be."""

    def __init__(
        self,
        host: str,
        port: int,
        info: SessionInfo,
        window: Window,
        context: ssl.SSLContext | None,
        limits: SenderLimits,
    ) -> None:
        super().__init__(name=f"spool-check-lan-rank{info.rank}", daemon=True)
        self._address, self._info, self._window, self._context, self._limits = (
            (host, port),
            info,
            window,
            context,
            limits,
        )
        self.url = url_of(host, port)
        self.connected = threading.Event()
        self.closed = threading.Event()
        self.error = "no connection yet"
        self.fatal = False
        self.full = ""
        self.max_bundle: int | None = None
        self.dropped = 0
        self._counts: Mapping[str, int] = {}
        self._close: bytes | None = None
        self._stopping = False
        self._sleeping = False
        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    # Called by other threads.

    def beat(self, counts: Mapping[str, int]) -> None:
        """Counts for the next heartbeat."""
        self._counts = dict(counts)

    def finish(self, state: str, counts: Mapping[str, int]) -> None:
        """Close the session after everything that the window holds; `closed` is set when the receiver has done so."""
        self._close = frames.close(state, counts)
        self.wake()

    def wake(self) -> None:
        """There is something to do."""
        if self._sleeping:
            with contextlib.suppress(OSError):
                os.write(self._write_end, b"\0")

    def stop(self) -> None:
        """End the thread; what is unacknowledged is lost."""
        self._stopping = True
        with contextlib.suppress(OSError):
            os.write(self._write_end, b"\0")
        if self.ident is not None:
            self.join(timeout=10)
        if not self.is_alive() and self._read_end >= 0:
            os.close(self._read_end)
            os.close(self._write_end)
            self._read_end = self._write_end = -1

    # The thread.

    def run(self) -> None:
        pause = self._limits.retry[0]
        while not self._stopping and not self.fatal:
            try:
                with self._connect() as sock:
                    pause = self._limits.retry[0]
                    self._pump(sock)
                    if self._close is not None and self.closed.is_set():
                        break
            except ssl.SSLError as error:
                self._lost(f"TLS: {explain(error)}", fatal=isinstance(error, ssl.SSLCertVerificationError))
            except TimeoutError:
                self._lost("it does not answer")
            except ProtocolError as error:
                self._lost(f"its answer {error}")
            except OSError as error:
                self._lost(error.strerror or str(error))
            except SpoolError as error:
                self._lost(str(error))
            except Exception as error:
                # Whoever waits for this thread must hear of its end.
                log.exception("%s: an error of this program ended the connection", self.url)
                self._lost(repr(error), fatal=True)
            if not self._stopping and not self.fatal:
                self._sleep(pause)
                pause = min(2 * pause, self._limits.retry[1])
        self._window.shut()

    def _lost(self, why: str, *, fatal: bool = False) -> None:
        if self.connected.is_set() and not self._stopping:
            log.warning("%s: connection lost: %s; %d bundles wait, trying again", self.url, why, len(self._window))
        self.connected.clear()
        self.error, self.fatal = why, self.fatal or fatal
        if self.fatal:
            log.error("%s: %s; nothing more can be sent", self.url, self.error)

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stopping and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    def _connect(self) -> socket.socket:
        sock: socket.socket = socket.create_connection(self._address, timeout=self._limits.connect)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                sock = self._context.wrap_socket(sock)
            sock.sendall(frames.hello(self._info))
            kind, body = receive_control(sock)
            if kind is Kind.REFUSED:
                self._refused(body)
            if kind is not Kind.WELCOME:
                raise ProtocolError(f"is {kind.name} where WELCOME belongs")
            welcome = frames.parse_welcome(body)
        except (ConnectionResetError, BrokenPipeError, EOFError) as error:
            sock.close()
            raise SpoolUnavailable(
                "it ended the connection at the handshake: it uses TLS and this side does not, or has no connection free"
            ) from error
        except BaseException:
            sock.close()
            raise
        self._window.acknowledge(welcome.landed)
        self._window.rewind()
        self.max_bundle, self.full = welcome.max_bundle, ""
        if welcome.closed:
            self.closed.set()
        self.connected.set()
        return sock

    def _pump(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        out: deque[memoryview] = deque()
        incoming = bytearray()
        poll = select.poll()
        poll.register(self._read_end, select.POLLIN)
        poll.register(sock, select.POLLIN)
        heard = beaten = time.monotonic()
        close_sent = False
        while not self._stopping and not (close_sent and self.closed.is_set()):
            now = time.monotonic()
            if not out:
                self._gather(out)
                if now - beaten > self._limits.heartbeat:
                    out.append(memoryview(frames.heartbeat(self._counts)))
                    beaten = now
                elif not out and self._close is not None and not close_sent and not len(self._window):
                    out.append(memoryview(self._close))
                    close_sent = True
            poll.modify(sock, select.POLLIN | (select.POLLOUT if out else 0))
            # RACE: whoever adds a bundle, or closes, looks at this flag afterwards; so those two are looked at once more.
            self._sleeping = not out
            closing = self._close is not None and not close_sent and not len(self._window)
            ready = dict(
                poll.poll(0 if not out and (self._window.unsent or closing) else 1000 * self._limits.heartbeat / 4)
            )
            self._sleeping = False
            if self._read_end in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._read_end, 4096)
            events = ready.get(sock.fileno(), 0)
            while events & ~select.POLLOUT and self._read(sock, incoming):
                heard = time.monotonic()
            if events & select.POLLOUT and send_some(sock, out):
                heard = time.monotonic()
            if time.monotonic() - heard > self._limits.silence:
                raise TimeoutError

    def _gather(self, out: deque[memoryview]) -> None:
        small: list[bytes | memoryview] = []
        for item in self._window.take(_GATHER_BUNDLES, _GATHER_BYTES):
            for buffer in (item.start, *item.buffers):
                if len(buffer) < _SMALL:
                    small.append(buffer)
                    continue
                if small:
                    out.append(memoryview(b"".join(small)))
                    small = []
                out.append(memoryview(buffer))
        if small:
            out.append(memoryview(b"".join(small)))

    def _read(self, sock: socket.socket, incoming: bytearray) -> bool:
        try:
            data = sock.recv(_RECEIVE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        if not data:
            raise ConnectionResetError(0, "the receiver closed the connection")
        incoming += data
        while len(incoming) >= HEAD_SIZE:
            kind, length = frames.parse_head(bytes(incoming[:HEAD_SIZE]))
            if length > frames.MAX_CONTROL:
                raise ProtocolError(f"is {kind.name} of {length} bytes")
            if len(incoming) < HEAD_SIZE + length:
                break
            body = bytes(incoming[HEAD_SIZE : HEAD_SIZE + length])
            del incoming[: HEAD_SIZE + length]
            self._answer(kind, body)
        return True

    def _answer(self, kind: Kind, body: bytes) -> None:
        if kind is Kind.ACK:
            self._window.acknowledge(frames.parse_ack(body))
            if self.full:
                log.warning("%s: the receiver has room again", self.url)
                self.full = ""
        elif kind is Kind.FULL:
            if not self.full:
                log.warning("%s: the receiver has no room: %s", self.url, frames.parse_full(body))
            self.full = frames.parse_full(body) or "full"
        elif kind is Kind.CLOSED:
            self.closed.set()
        elif kind is Kind.REFUSED:
            self._refused(body)
        else:
            raise ProtocolError(f"is {kind.name}, which a receiver does not send")

    def _refused(self, body: bytes) -> None:
        refusal = frames.parse_refusal(body)
        if refusal.number is not None and self._window.refused(refusal.number, _REFUSALS):
            self.dropped += 1
            log.warning(
                "%s: bundle %d was refused %d times and is dropped: %s",
                self.url,
                refusal.number,
                _REFUSALS,
                refusal.reason,
            )
        self.fatal = self.fatal or refusal.final
        raise SpoolUnavailable(f"refused: {refusal.reason}")

"""One connection at the receiver, from handshake to end, in a thread of its own."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import socket
import ssl
import time
from collections.abc import Callable

import xxhash

from ..directory import DirectorySpool
from ..errors import BundleError, SpoolError, SpoolFull
from ..interface import SessionInfo
from ..room import Room
from . import frames
from .frames import BUNDLE_HEAD_SIZE, BundleHead, Kind, ProtocolError
from .landing import Landing, Part
from .limits import ReceiverLimits
from .reading import Ended, FrameReader
from .slots import Refused, Slot, Slots
from .tls import explain

Track = Callable[[str, socket.socket], None]

log = logging.getLogger("spool_check.lan")

# Between two looks whether there is room again; each tells the sender that it is still being waited for.
_LOOK = 0.1
_ACK_EVERY = 4 * 1024 * 1024


class Connection:
    """Serves one peer. Whatever the peer does ends at most this connection."""

    def __init__(
        self, spool: DirectorySpool, room: Room, slots: Slots, limits: ReceiverLimits, stopping: Callable[[], bool]
    ) -> None:
        self._spool, self._room, self._slots, self._limits, self._stopping = spool, room, slots, limits, stopping

    def serve(self, sock: socket.socket, peer: str, context: ssl.SSLContext | None, track: Track) -> None:
        """Handshake, then frames until the end; the socket is closed. `track` hears of the socket that takes its place."""
        try:
            with self._wrapped(sock, context) as wrapped:
                track(peer, wrapped)
                if isinstance(wrapped, ssl.SSLSocket):
                    # The timeout holds for the whole handshake.
                    wrapped.do_handshake()
                try:
                    self._session(wrapped, peer)
                except (Refused, ProtocolError, SpoolError) as error:
                    self._refuse(wrapped, peer, error)
        except Ended:
            log.debug("%s: closed its connection", peer)
        except ssl.SSLError as error:
            log.warning("%s: refused at the TLS handshake: %s", peer, explain(error))
        except TimeoutError:
            log.warning("%s: too slow or silent; the connection is ended", peer)
        except OSError as error:
            log.info("%s: connection lost: %s", peer, error.strerror or error)
        except Exception:
            log.exception("%s: an error of this program ended the connection", peer)

    def _wrapped(self, sock: socket.socket, context: ssl.SSLContext | None) -> socket.socket:
        sock.settimeout(self._limits.handshake)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            return sock
        return context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def _session(self, sock: socket.socket, peer: str) -> None:
        reader = FrameReader(sock, allowance=self._limits.handshake, least_rate=self._limits.least_rate)
        kind, length = reader.head()
        if kind is not Kind.HELLO:
            raise ProtocolError(f"{kind.name} before HELLO")
        try:
            info = frames.parse_hello(reader.take(length))
        except ProtocolError as error:
            raise Refused(str(error), final=True) from error
        shown = fingerprint(sock)
        slot = self._slots.take(info, sock, shown)
        try:
            landing = slot.open(self._spool, shown)
            log.info("%s: rank %d, session %s, from bundle %d on", peer, info.rank, info.session, landing.landed + 1)
            sock.sendall(frames.welcome(frames.Welcome(landing.landed, landing.closed, self._limits.max_bundle)))
            sock.settimeout(self._limits.idle)
            reader.allow(self._limits.idle)
            self._frames(sock, reader, slot, landing)
        finally:
            self._slots.leave(slot, sock)

    def _frames(self, sock: socket.socket, reader: FrameReader, slot: Slot, landing: Landing) -> None:
        unsaid = 0
        while True:
            if unsaid and (reader.idle or unsaid > _ACK_EVERY):
                # One acknowledgement for all that came together; a window that is not small never waits for it.
                sock.sendall(frames.ack(landing.landed))
                unsaid = 0
            kind, length = reader.head()
            if kind is Kind.BUNDLE:
                self._bundle(sock, reader, slot, landing, length)
                unsaid += length
            elif kind is Kind.HEARTBEAT:
                slot.beat(frames.parse_heartbeat(reader.take(length)))
                sock.sendall(frames.ack(landing.landed))
            elif kind is Kind.CLOSE:
                state, counts = frames.parse_close(reader.take(length))
                slot.end(state, counts)
                sock.sendall(frames.ack(landing.landed) + frames.head(Kind.CLOSED, 0))
            else:
                raise ProtocolError(f"{kind.name} from a sender")

    def _bundle(self, sock: socket.socket, reader: FrameReader, slot: Slot, landing: Landing, length: int) -> None:
        if length < BUNDLE_HEAD_SIZE:
            raise ProtocolError(f"BUNDLE of {length} bytes; its head alone has {BUNDLE_HEAD_SIZE}")
        head = frames.parse_bundle_head(reader.take(BUNDLE_HEAD_SIZE))
        size = length - BUNDLE_HEAD_SIZE - head.api_size
        if size < 0 or head.api_size > frames.MAX_CONTROL:
            raise ProtocolError(f"BUNDLE of {length} bytes with an API name of {head.api_size}")
        if size > self._limits.max_bundle:
            raise Refused(
                f"bundle of {size} bytes; the receiver's limit is {self._limits.max_bundle}", number=head.number
            )
        api = frames.parse_api(reader.take(head.api_size))
        if landing.closed:
            raise Refused(f"session {slot.info.session} is closed; nothing may follow", final=True)
        if head.number <= landing.landed:
            # It came back after a lost acknowledgement.
            for _ in reader.pieces(size):
                pass
            return
        self._wait_for_room(sock, reader, slot, size)
        try:
            self._land(reader, landing, slot.info, head, api, size)
        except SpoolFull as error:
            # The disk can be fuller than it said. The sender comes back, by and by.
            sock.sendall(frames.full(str(error)))
            raise

    def _land(
        self, reader: FrameReader, landing: Landing, info: SessionInfo, head: BundleHead, api: str, size: int
    ) -> None:
        digest = xxhash.xxh3_64()
        with landing.part(head.number) as part:
            for piece in reader.pieces(size):
                digest.update(piece)
                part.write(piece)
            if digest.intdigest() != head.digest:
                raise Refused(
                    f"bundle {head.number} ({api}) has another digest than it was sent with", number=head.number
                )
            part.finish()
            self._compare(part, head, (info.session, info.rank, head.step, head.seq, api))
            landing.reveal(part, head, api)

    def _compare(self, part: Part, head: BundleHead, said: tuple[str, int, int, int, str]) -> None:
        """Refuse a file whose own header is not that of the call that its session and frame name."""
        try:
            header = part.header(self._limits.max_header)
        except BundleError as error:
            raise Refused(f"bundle {head.number} is none that can be judged: {error}", number=head.number) from error
        if (found := (*header.key, header.api)) != said:
            raise Refused(f"bundle {head.number} was sent as {said}, its own header says {found}", number=head.number)

    def _wait_for_room(self, sock: socket.socket, reader: FrameReader, slot: Slot, size: int) -> None:
        said = False
        while (why := self._room.why_not(slot.info.rank, size)) is not None:
            if self._stopping():
                raise Ended
            if not said:
                log.warning("%s; the sender waits or drops by its own policy", why)
                said = True
            sock.sendall(frames.full(why))
            slot.beat()
            time.sleep(_LOOK)
        if said:
            log.warning("%s: there is room again", self._spool.root)
            reader.extend(size)

    def _refuse(self, sock: socket.socket, peer: str, error: Exception) -> None:
        if isinstance(error, Refused):
            refusal = error.refusal
        else:
            refusal = frames.Refusal(f"a frame {error}" if isinstance(error, ProtocolError) else str(error))
        log.log(
            logging.WARNING if not isinstance(error, SpoolFull) else logging.INFO,
            "%s: refused: %s",
            peer,
            refusal.reason,
        )
        with contextlib.suppress(OSError):
            sock.settimeout(1.0)
            sock.sendall(frames.refused(refusal))
            # Data that nobody reads would make the kernel reset the connection and lose the refusal on its way.
            socket.socket.shutdown(sock, socket.SHUT_WR)
            deadline = time.monotonic() + 1.0
            while time.monotonic() < deadline and sock.recv(65536):
                pass


def fingerprint(sock: socket.socket) -> str | None:
    """SHA-256 of the peer's certificate; None without TLS."""
    if not isinstance(sock, ssl.SSLSocket):
        return None
    shown = sock.getpeercert(binary_form=True)
    return None if shown is None else hashlib.sha256(shown).hexdigest()

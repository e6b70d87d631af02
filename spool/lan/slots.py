"""What a receiver knows of each session, whether it is connected or not."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Mapping

from ..directory import DirectorySpool
from ..errors import SpoolError
from ..interface import Session, SessionInfo
from ..session_files import SessionFile
from .frames import Refusal
from .landing import Landing
from .limits import ReceiverLimits

log = logging.getLogger("spool_check.lan")

# How often the record of a session that lost its connection, or waits for room, is renewed by the receiver.
BEAT = 2.0


class Refused(Exception):
    """This peer, or this bundle, is not let in; the refusal is sent before the connection ends."""

    def __init__(self, reason: str, *, number: int | None = None, final: bool = False) -> None:
        super().__init__(reason)
        self.refusal = Refusal(reason, number, final)


class Slot:
    """One session: its record in the spool, where its bundles land, and the connection that feeds it now.

    `busy` is held by the thread of that connection for as long as it works; the rest is guarded by the table's lock.
    """

    def __init__(self, info: SessionInfo) -> None:
        self.info = info
        self.busy = threading.Lock()
        self.sock: socket.socket | None = None
        self.lost_at = time.monotonic()
        self.beaten_at = 0.0
        self.counts: Mapping[str, int] = {}
        self.session: Session | None = None
        self.landing: Landing | None = None
        self.over = False

    def open(self, spool: DirectorySpool, peer: str | None) -> Landing:
        """Open record and landing, after a loss too. Raises SpoolError. The caller holds `busy`."""
        if self.landing is None:
            landing = Landing(spool.root, self.info, spool.options, peer)
            try:
                self.check(landing, peer)
                if not landing.closed:
                    landing.tag = self._open_record(spool)
            except BaseException:
                landing.close()
                raise
            self.landing = landing
        self.check(self.landing, peer)
        self.over = self.landing.closed
        return self.landing

    def check(self, landing: Landing, peer: str | None) -> None:
        """Refuse a peer that shows another certificate than the one that opened the session."""
        if landing.peer != (peer or "-"):
            raise Refused(f"session {self.info.session} was opened with another certificate", final=True)

    def _open_record(self, spool: DirectorySpool) -> str:
        session = spool.open_session(self.info)
        assert isinstance(session, SessionFile)
        self.session = session
        return session.tag

    def beat(self, counts: Mapping[str, int] | None = None) -> None:
        """Renew the session's record; a full disk costs the beat, not the connection."""
        if counts is not None:
            self.counts = counts
        elif time.monotonic() - self.beaten_at < BEAT:
            return
        self.beaten_at = time.monotonic()
        if self.session is not None and not self.over:
            with contextlib.suppress(SpoolError):
                self.session.heartbeat(self.counts)

    def end(self, state: str, counts: Mapping[str, int]) -> None:
        """Write the session's last record. Raises SpoolError. The caller holds `busy`."""
        self.counts = counts
        if self.session is not None and not self.over:
            self.session.close(state, counts)
        self.over = True
        if self.landing is not None and not self.landing.closed:
            self.landing.shut()
            # A receiver may see more sessions than a process may have files open.
            self.landing.close()


class Slots:
    """All sessions of a receiver."""

    def __init__(self, limits: ReceiverLimits) -> None:
        self._limits = limits
        self._slots: dict[tuple[int, str], Slot] = {}
        self._lock = threading.Lock()

    def take(self, info: SessionInfo, sock: socket.socket, peer: str | None) -> Slot:
        """The session's slot for this connection; an older connection of the same session is cut. Release `busy` after use."""
        with self._lock:
            known = self._slots.get((info.rank, info.session))
            if known is None and len(self._slots) >= self._limits.sessions:
                raise Refused(
                    f"this receiver has seen {len(self._slots)} sessions, its limit; start it again", final=True
                )
            slot = self._slots.setdefault((info.rank, info.session), known or Slot(info))
            if slot.landing is not None:
                # Before the connection at work is cut for a stranger.
                slot.check(slot.landing, peer)
            older, slot.sock = slot.sock, sock
        if older is not None:
            cut(older)
        if not slot.busy.acquire(timeout=self._limits.idle):
            raise Refused(f"session {info.session} is still busy with its earlier connection")
        return slot

    def leave(self, slot: Slot, sock: socket.socket) -> None:
        """The connection has ended."""
        with self._lock:
            if slot.sock is sock:
                slot.sock, slot.lost_at = None, time.monotonic()
        slot.busy.release()

    def look(self) -> None:
        """Renew the records of sessions that lost their connection, and end those that lost it for too long."""
        with self._lock:
            lost = [slot for slot in self._slots.values() if slot.sock is None and not slot.over]
        for slot in lost:
            if not slot.busy.acquire(blocking=False):
                continue
            try:
                if slot.sock is not None or slot.over or slot.session is None:
                    continue
                if time.monotonic() - slot.lost_at < self._limits.lost_after:
                    slot.beat()
                    continue
                log.warning(
                    "rank %d, session %s: no connection for %g s; it counts as failed",
                    slot.info.rank, slot.info.session, self._limits.lost_after,
                )  # fmt: skip
                # Not shut: a sender that comes back after all goes on where it was.
                slot.session.close("failed", slot.counts)
                slot.over = True
            except SpoolError as error:
                log.warning("%s", error)
            finally:
                slot.busy.release()

    def close(self) -> None:
        """Cut every connection and let go of the files."""
        with self._lock:
            slots = list(self._slots.values())
            for slot in slots:
                if slot.sock is not None:
                    cut(slot.sock)
        for slot in slots:
            with slot.busy:
                if slot.landing is not None:
                    slot.landing.close()
                    slot.landing = None


def cut(sock: socket.socket) -> None:
    """End a connection that another thread is using."""
    with contextlib.suppress(OSError):
        # Not the method of an SSLSocket, which would forget its encryption first.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)

"""The sender: a spool whose bundles land in a receiver's directory, on a host without shared storage."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from typing import NoReturn

import xxhash

from ..bundle import Bundle
from ..codec import Buffer, encode_bundle
from ..errors import SpoolError, SpoolFull, SpoolUnavailable
from ..interface import Claim, Session, SessionInfo, SessionRecord, Spool, SpoolStats
from ..options import SpoolOptions
from ..waiting import Waiting, Wanted
from . import frames
from .address import parse_url, url_of
from .limits import SenderLimits
from .link import Link
from .passphrase import Passphrase
from .tls import client_context
from .window import Sent, Window


class SocketSpool(Spool):
    """A receiver's spool, for writing alone. Each session has a connection of its own; calls from several threads are fine.

    `publish` returns when the bundle is in the window; it leaves the window when it is durable on the other side, and goes
    again after a lost connection. `Session.close` waits for all of it.
    """

    durable = True
    shareable = False

    def __init__(
        self,
        url: str,
        *,
        tls_path: str | None = None,
        options: SpoolOptions | None = None,
        limits: SenderLimits | None = None,
        passphrase: Passphrase | None = None,
    ) -> None:
        self._host, self._port = parse_url(url)
        self.url = url_of(self._host, self._port)
        self.wake = threading.Event()
        self._options, self._limits = options or SpoolOptions(), limits or SenderLimits()
        self._context = None if tls_path == "" else client_context(tls_path, passphrase)
        self._sessions: dict[str, _SocketSession] = {}

    def open_session(self, info: SessionInfo) -> Session:
        window = Window(self._limits, self._options)
        link = Link(self._host, self._port, info, window, self._context, self._limits)
        session = _SocketSession(info, link, window, self._limits)
        link.start()
        deadline = time.monotonic() + self._limits.connect
        while not link.connected.wait(0.05):
            if link.fatal or time.monotonic() > deadline:
                why = link.error
                link.stop()
                raise SpoolUnavailable(
                    f"{self.url}: {why}; start `spool-check watch {self.url}` on the receiver's host first, and check host, "
                    "port and tls_path on both sides"
                )
        self._sessions[info.session] = session
        return session

    def publish(self, bundle: Bundle) -> bool:
        session = self._sessions.get(bundle.header.session)
        if session is None:
            raise SpoolUnavailable(
                f"{self.url}: session {bundle.header.session} is not open; open it before publishing"
            )
        return session.publish(bundle)

    def claim(
        self, timeout: float = 0.0, *, ranks: Collection[int] | None = None, wanted: Wanted | None = None
    ) -> Claim | None:
        self._not_here("claim")

    def waiting(self, *, ranks: Collection[int] | None = None) -> Iterator[Waiting]:
        self._not_here("waiting")

    def retry_quarantined(self) -> int:
        self._not_here("retry_quarantined")

    def _not_here(self, what: str) -> NoReturn:
        raise SpoolUnavailable(
            f"{self.url}: {what} is not possible through a socket: bundles are judged where they land; "
            f"run `spool-check watch {self.url}` on the receiver's host"
        )

    def sessions(self) -> list[SessionRecord]:
        """The sessions of this process: what others sent is known where it landed."""
        return [session.record() for session in self._sessions.values()]

    def stats(self) -> SpoolStats:
        """What waits here for its acknowledgement."""
        waiting = {session.info.rank: session.waiting for session in self._sessions.values()}
        return SpoolStats(ready=sum(waiting.values()), claimed=0, quarantined=0, ready_by_rank=waiting)

    def tidy(self) -> None:
        """Nothing is kept here that could be empty."""

    def close(self) -> None:
        for session in self._sessions.values():
            session.stop()


class _SocketSession(Session):
    def __init__(self, info: SessionInfo, link: Link, window: Window, limits: SenderLimits) -> None:
        self.info, self._link, self._window, self._limits = info, link, window, limits
        self._counts: Mapping[str, int] = {}
        self._state, self._beat = "open", 0

    @property
    def waiting(self) -> int:
        return len(self._window)

    def record(self) -> SessionRecord:
        return SessionRecord(
            **vars(self.info), state=self._state, counts=self._counts, beat=self._beat, heartbeat=time.time()
        )

    def publish(self, bundle: Bundle) -> bool:
        header, buffers = bundle.header, encode_bundle(bundle)
        size = sum(map(len, buffers))
        self._check(header.api, size)
        digest = _digest(buffers)
        with self._window.changed:
            if not self._window.room(size):
                self._check(header.api, size)
                return False
            number = self._window.next_number()
            start = frames.bundle_head(number, header.step, header.seq, header.api, digest, size)
            self._window.add(Sent(number, start, buffers, size))
        self._link.wake()
        return True

    def _check(self, api: str, size: int) -> None:
        if self._link.fatal:
            raise SpoolUnavailable(f"{self._link.url}: {self._link.error}; {api} was not sent")
        if self._link.max_bundle is not None and size > self._link.max_bundle:
            raise SpoolFull(f"{self._link.url}: {api} takes {size} bytes, the receiver accepts {self._link.max_bundle}")

    def heartbeat(self, counts: Mapping[str, int]) -> None:
        self._counts, self._beat = dict(counts), self._beat + 1
        self._link.beat(counts)

    def close(self, state: str = "closed", counts: Mapping[str, int] | None = None) -> None:
        if self._state != "open":
            return
        self._state, self._counts = state, dict(self._counts if counts is None else counts)
        self._link.finish(state, self._counts)
        started = time.monotonic()
        while not self._link.closed.wait(0.05):
            quiet = time.monotonic() - max(started, self._window.moved_at)
            if self._link.fatal or quiet > self._limits.close:
                lost = self.waiting
                self.stop()
                raise SpoolUnavailable(
                    f"{self._link.url}: {self._link.error}; the session could not be closed, {lost} calls did not arrive"
                )
        self.stop()
        if self._link.dropped:
            raise SpoolError(f"{self._link.url}: the receiver refused {self._link.dropped} calls; its log says why")

    def stop(self) -> None:
        self._window.shut()
        self._link.stop()


def _digest(buffers: list[Buffer]) -> int:
    digest = xxhash.xxh3_64()
    for buffer in buffers:
        digest.update(buffer)
    return digest.intdigest()

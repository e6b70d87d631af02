"""The receiver: listens, and lands what senders send in a directory spool, for an ordinary reader beside it."""

from __future__ import annotations

import logging
import os
import socket
import threading
from pathlib import Path
from types import TracebackType

from ..counting import waiting_of
from ..directory import DirectorySpool
from ..errors import ConfigError, SpoolUnavailable
from ..opening import open_spool
from ..options import SpoolOptions
from ..room import Room
from .address import is_loopback, url_of
from .limits import ReceiverLimits
from .passphrase import Passphrase
from .serving import Connection
from .slots import Slots, cut
from .tls import server_context

log = logging.getLogger("spool_check.lan")

_LOOK = 0.5
_BACKLOG = 128


class Receiver:
    """Lands the bundles of any number of senders in `spool_dir`; a context manager that starts and stops itself.

    `tls_path` is the folder of the certificates, None the current folder, and an empty string means plain TCP. A plain receiver
    without a host listens to this host alone. Raises ConfigError for certificates and addresses, SpoolUnavailable when the
    address or the folder cannot be used.
    """

    def __init__(
        self,
        host: str,
        port: int,
        spool_dir: str | os.PathLike[str],
        *,
        tls_path: str | None = None,
        limits: ReceiverLimits | None = None,
        options: SpoolOptions | None = None,
        passphrase: Passphrase | None = None,
    ) -> None:
        self._limits, self._options = limits or ReceiverLimits(), options or SpoolOptions()
        self._context = None if tls_path == "" else server_context(tls_path, passphrase)
        self._asked = (host or ("127.0.0.1" if self._context is None else "0.0.0.0"), port)
        self._root = Path(spool_dir)
        self._slots = Slots(self._limits)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._sockets: dict[str, socket.socket] = {}
        self._threads: set[threading.Thread] = set()
        self._listener: socket.socket | None = None
        self._spool: DirectorySpool | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on; the port is a real one where 0 was asked for."""
        if self._listener is None:
            return self._asked
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """What a sender on this host opens."""
        return url_of(*self.address)

    def start(self) -> Receiver:
        """Listen, and return at once."""
        spool = open_spool(self._root, create=True, options=self._options)
        assert isinstance(spool, DirectorySpool)
        self._spool = spool
        self._listener = self._listen()
        sizes = self._options.max_pending_bytes is not None
        room = Room(spool.root, self._options, lambda rank: waiting_of(spool.root, rank, sizes=sizes))
        connection = Connection(spool, room, self._slots, self._limits, self._stop.is_set)
        if self._context is None and not is_loopback(self.address[0]):
            log.warning(
                "%s: plain TCP: everybody who reaches this address can send and read along; set tls_path", self.url
            )
        for name, run in (("accept", lambda: self._accept(connection)), ("look", self._look)):
            self._begin(threading.Thread(target=run, name=f"spool-check-lan-{name}", daemon=True))
        return self

    def _listen(self) -> socket.socket:
        host, port = self._asked
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            kind = ConfigError if isinstance(error, OverflowError | socket.gaierror) else SpoolUnavailable
            raise kind(
                f"{url_of(host, port)}: cannot listen there: {reason}; give an address of this host and a free port"
            ) from error

    def _accept(self, connection: Connection) -> None:
        assert self._listener is not None
        while not self._stop.is_set():
            try:
                sock, address = self._listener.accept()
            except OSError as error:
                if self._stop.wait(0.1):
                    return
                log.warning("%s: a connection could not be accepted: %s", self.url, error.strerror)
                continue
            peer = url_of(*address[:2]).removeprefix("tcp://")
            with self._lock:
                crowded = len(self._sockets) >= self._limits.connections
                if not crowded:
                    self._sockets[peer] = sock
            if crowded or self._stop.is_set():
                log.warning("%s: refused: %d connections are the limit", peer, self._limits.connections)
                sock.close()
                continue
            self._begin(
                threading.Thread(
                    target=self._serve, args=(connection, sock, peer), name=f"spool-check-lan-{peer}", daemon=True
                )
            )

    def _serve(self, connection: Connection, sock: socket.socket, peer: str) -> None:
        try:
            connection.serve(sock, peer, self._context, self._track)
        finally:
            with self._lock:
                self._sockets.pop(peer, None)
                self._threads.discard(threading.current_thread())

    def _track(self, peer: str, sock: socket.socket) -> None:
        with self._lock:
            self._sockets[peer] = sock
        if self._stop.is_set():
            cut(sock)

    def _begin(self, thread: threading.Thread) -> None:
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def _look(self) -> None:
        while not self._stop.wait(_LOOK):
            self._slots.look()

    def stop(self) -> None:
        """Listen no more, cut every connection, and wait for their threads; sessions may go on with the next receiver."""
        self._stop.set()
        if self._listener is not None:
            cut(self._listener)
        with self._lock:
            sockets, threads = list(self._sockets.values()), list(self._threads)
        for sock in sockets:
            cut(sock)
        self._slots.close()
        for thread in threads:
            thread.join(timeout=10)
        if self._listener is not None:
            self._listener.close()
        if self._spool is not None:
            self._spool.close()

    def __enter__(self) -> Receiver:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

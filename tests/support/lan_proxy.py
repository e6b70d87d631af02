"""A TCP proxy that cuts its connections after a number of bytes, so that a test breaks a stream where it wants."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class CuttingProxy:
    """Passes bytes between `url` and `target`; `budget()` says after how many bytes of the sender each connection ends."""

    def __init__(self, target: tuple[str, int], budget: Callable[[], int]) -> None:
        self._target, self._budget = target, budget
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with near, contextlib.suppress(OSError), socket.create_connection(self._target) as far:
                back = threading.Thread(target=_copy, args=(far, near), daemon=True)
                back.start()
                left = self._budget()
                while left > 0 and (data := near.recv(min(left, 65536))):
                    far.sendall(data)
                    left -= len(data)
                self.cuts += left == 0
                for sock in (near, far):
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_RDWR)
                back.join()

    def close(self) -> None:
        """Accept nothing more; the connection in hand ends with its peers."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(timeout=10)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from spool_bundles import PLAIN

from spool.lan import Receiver, ReceiverLimits
from spool.lan.certs import make_certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a working set."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return str(folder)


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, certificates: str) -> str:
    """`tls_path` for both sides: once plain TCP, once TLS."""
    return certificates if request.param == "tls" else ""


@pytest.fixture
def receive(tmp_path: Path) -> Iterator[Callable[..., Receiver]]:
    """Starts receivers on `tmp_path/spool`; they are stopped at the end."""
    started: list[Receiver] = []

    def start(tls_path: str = "", *, port: int = 0, folder: Path | None = None, **limits: Any) -> Receiver:
        receiver = Receiver(
            "127.0.0.1",
            port,
            folder or tmp_path / "spool",
            tls_path=tls_path,
            limits=ReceiverLimits(**limits),
            options=PLAIN,
        )
        started.append(receiver)
        return receiver.start()

    yield start
    for receiver in started:
        receiver.stop()

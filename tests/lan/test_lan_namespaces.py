"""Two hosts in small: a receiver and a sender in network namespaces of their own, over a virtual cable."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lan_child import Peer
from spool_bundles import PLAIN, drain

from spool import open_spool


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Names of two namespaces, 10.123.0.1 and 10.123.0.2 in them."""
    if shutil.which("ip") is None:
        pytest.skip("the program ip (iproute2) is not installed")
    names = (f"scl-{os.getpid()}-a", f"scl-{os.getpid()}-b")
    made: list[str] = []
    try:
        try:
            for name in names:
                ip("netns", "add", name)
                made.append(name)
            ip("-n", names[0], "link", "add", "scl0", "type", "veth", "peer", "name", "scl0", "netns", names[1])
            for number, name in enumerate(names, 1):
                ip("-n", name, "addr", "add", f"10.123.0.{number}/24", "dev", "scl0")
                ip("-n", name, "link", "set", "scl0", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
        yield names
    finally:
        for name in made:
            ip("netns", "del", name)


def test_from_one_host_to_another(hosts: tuple[str, str], tls: str, tmp_path: Path) -> None:
    near, far = hosts
    receiver = Peer(
        "receive", prefix=("ip", "netns", "exec", near), spool=str(tmp_path / "spool"), host="10.123.0.1", tls=tls
    )
    url = receiver.line()
    assert url.startswith("tcp://10.123.0.1:")
    senders = [
        Peer("send", prefix=("ip", "netns", "exec", far), url=url, tls=tls, rank=rank, count=200, elements=5000)
        for rank in range(2)
    ]
    assert [sender.end() for sender in senders] == [0, 0]
    assert receiver.end() == 0
    with open_spool(tmp_path / "spool", options=PLAIN) as spool:
        assert len(drain(spool)) == 400
        assert [record.state for record in spool.sessions()] == ["closed", "closed"]


def test_the_cable_is_pulled_and_put_back(hosts: tuple[str, str], tmp_path: Path) -> None:
    near, far = hosts
    receiver = Peer("receive", prefix=("ip", "netns", "exec", near), spool=str(tmp_path / "spool"), host="10.123.0.1")
    sender = Peer("send", prefix=("ip", "netns", "exec", far), url=receiver.line(), count=2000, elements=5000)
    assert sender.line() == "first"
    ip("-n", far, "link", "set", "scl0", "down")
    assert sender.process.poll() is None
    ip("-n", far, "link", "set", "scl0", "up")
    assert sender.end() == 0
    receiver.end()
    with open_spool(tmp_path / "spool", options=PLAIN) as spool:
        assert [key[3] for key in drain(spool)] == list(range(2000))

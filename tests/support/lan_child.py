"""A receiver, a sender or a dying landing in a process of its own: `python lan_child.py receive|send|land JSON`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from processes import environment

if TYPE_CHECKING:
    from spool.lan.landing import Landing


class Peer:
    """The parent's end of such a process."""

    def __init__(self, role: str, *, prefix: Sequence[str] = (), **settings: Any) -> None:
        env = environment()
        env["PYTHONPATH"] = f"{env['PYTHONPATH']}:{Path(__file__).parent}"
        self.process = subprocess.Popen(
            [*prefix, sys.executable, __file__, role, json.dumps(settings)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip

    def line(self) -> str:
        """The next line that it prints; empty at its end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self, timeout: float = 60) -> int:
        """Close its input and wait for it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        code = self.process.wait(timeout)
        self.process.stdout.close()
        return code

    def kill(self) -> None:
        """kill -9, whatever it is doing."""
        self.process.kill()
        self.end()


def _receive(spool: str, port: int = 0, host: str = "127.0.0.1", tls: str = "", **limits: Any) -> None:
    from spool_bundles import PLAIN

    from spool.lan import Receiver, ReceiverLimits

    with Receiver(host, port, spool, tls_path=tls, limits=ReceiverLimits(**limits), options=PLAIN) as receiver:
        print(receiver.url, flush=True)
        sys.stdin.read()


def _send(url: str, tls: str = "", rank: int = 0, count: int = 10, elements: int = 4, session: str = "s1") -> None:
    import torch
    from spool_bundles import PLAIN, call, info

    from spool import open_spool

    torch.set_num_threads(1)
    with open_spool(url, tls_path=tls, options=PLAIN) as spool:
        opened = spool.open_session(info(session, rank))
        for seq in range(count):
            spool.publish(call(seq, torch.full((elements,), float(seq)), rank=rank, session=session))
            if seq == 0:
                print("first", flush=True)
        opened.close("closed", {"published": count})
    print("closed", flush=True)


def land(into: Landing, number: int) -> None:
    """Land one bundle as a connection does."""
    from spool_bundles import call

    from spool import dump_bundle
    from spool.lan.frames import BundleHead

    with into.part(number) as part:
        part.write(memoryview(dump_bundle(call(number))))
        part.finish()
        into.reveal(part, BundleHead(number, 0, number, 0, 0), f"Torch.add.{number}")


def _land(spool: str, die_in: str) -> None:
    """Land bundle 1, and die while bundle 2 lands."""
    from spool_bundles import PLAIN, info

    from spool.lan import landing

    into = landing.Landing(Path(spool), info(), PLAIN, None)
    land(into, 1)
    for module, name in ((landing.os, "pwrite"), (landing.files, "rename")):
        if name == die_in:
            setattr(module, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    land(into, 2)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    {"receive": _receive, "send": _send, "land": _land}[sys.argv[1]](**json.loads(sys.argv[2]))

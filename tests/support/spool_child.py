"""A process with a spool of its own, told line by line what to do: `python spool_child.py ROOT STALE_AFTER [BOOT]`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from processes import environment


class Child:
    """The parent's end of such a process."""

    def __init__(self, root: Path, *, stale_after: float = 30.0, boot: str = "") -> None:
        support = Path(__file__).parent
        env = environment()
        env["PYTHONPATH"] = f"{env['PYTHONPATH']}{os.pathsep}{support}"
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(root), str(stale_after), boot],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip
        self.pid = self._process.pid

    def tell(self, *words: object) -> None:
        """Say what to do."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def answer(self) -> list[str]:
        """The words of the next answer; empty when the process has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()

    def ask(self, *words: object) -> list[str]:
        """Say what to do, and wait until it is done."""
        self.tell(*words)
        return self.answer()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def end(self) -> int:
        """Close its input, and its exit status when it has ended."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        code = self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def kill(self) -> None:
        """kill -9, whatever it is doing."""
        self._process.kill()
        self.end()


def main(arguments: Sequence[str]) -> None:
    """The child's end."""
    from spool_bundles import call, info

    from spool import SpoolOptions, files, open_spool, process

    root, stale_after, boot = Path(arguments[0]), float(arguments[1]), arguments[2]
    if boot:
        # As on another host: nobody here can see whether this process lives.
        process._boot_id = lambda: boot
    spool = open_spool(root, options=SpoolOptions(reserve_bytes=0, stale_after=stale_after))
    claims: list[Any] = []

    def do(word: str, *rest: str) -> object:
        if word == "claim":
            claims.append(spool.claim(float(rest[0]) if rest else 0.0))
            return f"{claims[-1].seq} {claims[-1].attempt}" if claims[-1] else None
        if word == "done":
            return claims[-1].done()
        if word == "drain":
            keys = []
            while (claim := spool.claim(float(rest[0]))) is not None:
                claim.load()
                keys.append(f"{claim.rank}.{claim.seq}") if claim.done() else None
            return " ".join(keys)
        if word == "publish":
            first, last, rank = map(int, rest)
            spool.open_session(info(rank=rank))
            for seq in range(first, last):
                spool.publish(call(seq, rank=rank))
            return last - first
        if word == "own":
            return spool._consumer.own  # type: ignore[attr-defined]
        if word == "die-in-write":
            write = files.write_buffers

            def half(fd: int, buffers: Any) -> int:
                write(fd, [bytes(buffers[0])[:100]])
                os.kill(os.getpid(), signal.SIGKILL)
                return 0

            files.write_buffers = half
            return spool.publish(call(99))
        raise ValueError(word)

    print("ready", flush=True)
    for line in sys.stdin:
        print(do(*line.split()), flush=True)
    spool.close()


if __name__ == "__main__":
    main(sys.argv[1:])

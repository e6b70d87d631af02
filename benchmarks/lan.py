"""LAN mode against raw sockets, in one run: `python benchmarks/lan.py [--mib 1024] [--small 20000] [--folder DIR]`.

Two processes over loopback. `raw` sends the same bytes from memory with sendall and throws them away after recv_into; `raw+files`
writes each bundle into a file and renames it, which is the least that a receiver which keeps bundles must do. The ratios are
what counts. The peer's own client and server (plain TCP, checksums on; its server keeps nothing) send the same bytes where
`make peer` could install them. Last, the sender's memory while it publishes fresh tensors as fast as it can.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from spool import Bundle, SessionInfo, SpoolOptions, dump_bundle, open_spool
from spool.lan import Receiver
from spool.lan.certs import make_certificates
from spool.lan.tls import client_context, server_context

MiB = 2**20
OPTIONS = SpoolOptions(reserve_bytes=0, max_pending_bundles=10**9)
SMALL_BYTES = 48 * 1024
PEER = Path(__file__).resolve().parent.parent / ".venv-peer" / "bin" / "python"
# Its small bundles take 0.1 s each.
PEER_SECONDS, PEER_BUNDLES = 60, 200


def bundle(seq: int, tensor: torch.Tensor) -> Bundle:
    """One call with one tensor."""
    return Bundle.build(
        session="bench", rank=0, step=0, seq=seq, api=f"Torch.add.{seq}", phase="forward", args=(tensor,), kwargs={},
        result=None, context={}, producer={}, time=0.0,
    )  # fmt: skip


def raw_receiver(pipe: Connection, tls: str, folder: str | None, size: int) -> None:
    """Accept one connection and take everything that comes."""
    buffer = memoryview(bytearray(MiB))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        sock, _ = listener.accept()
    if tls:
        sock = server_context(tls).wrap_socket(sock, server_side=True)
    number = left = 0
    fd = -1
    with sock:
        while count := sock.recv_into(buffer):
            data = buffer[: count if folder else 0]
            while data:
                if not left:
                    fd, left = os.open(f"{folder}/part", os.O_WRONLY | os.O_CREAT | os.O_EXCL), size
                written = os.write(fd, data[:left])
                data, left = data[written:], left - written
                if not left:
                    os.close(fd)
                    number += 1
                    os.rename(f"{folder}/part", f"{folder}/{number}")
        if isinstance(sock, ssl.SSLSocket):
            sock = sock.unwrap()
        sock.sendall(b"x")


def raw(tls: str, folder: str | None, data: list[memoryview]) -> float:
    """Seconds to send all of `data` and hear that it arrived."""
    pipe, other = multiprocessing.Pipe()
    process = multiprocessing.Process(target=raw_receiver, args=(other, tls, folder, len(data[0])))
    process.start()
    sock = socket.create_connection(("127.0.0.1", pipe.recv()))
    if tls:
        sock = client_context(tls).wrap_socket(sock)
    started = time.perf_counter()
    for piece in data:
        sock.sendall(piece)
    if isinstance(sock, ssl.SSLSocket):
        sock = sock.unwrap()
    else:
        sock.shutdown(socket.SHUT_WR)
    sock.recv(1)
    elapsed = time.perf_counter() - started
    sock.close()
    process.join()
    return elapsed


def receiver(pipe: Connection, folder: str, tls: str) -> None:
    """A receiver until the pipe says stop."""
    with Receiver("127.0.0.1", 0, folder, tls_path=tls, options=OPTIONS) as running:
        pipe.send(running.url)
        pipe.recv()
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def ours(tls: str, folder: Path, bundles: Iterable[Bundle]) -> tuple[float, float, float]:
    """Seconds to publish all and close the session; what the sender's peak grew by and the receiver's peak, in MiB."""
    pipe, other = multiprocessing.Pipe()
    process = multiprocessing.Process(target=receiver, args=(other, str(folder), tls))
    process.start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open_spool(pipe.recv(), tls_path=tls, options=OPTIONS) as spool:
        session = spool.open_session(SessionInfo("bench", 0, "h", 1, "0", 0.0))
        started = time.perf_counter()
        for item in bundles:
            if not spool.publish(item):
                raise SystemExit("a bundle was dropped")
        session.close("closed", {})
        elapsed = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pipe.send("stop")
    peak = pipe.recv()
    process.join()
    return elapsed, (after - before) / 1024, peak


def peer(data: memoryview, count: int, folder: Path) -> str:
    """What the peer's client and server take for `count` times `data`, in words; or why that is not known."""
    if not PEER.exists():
        return "not installed here (make peer)"
    path = folder / "payload"
    path.write_bytes(data)
    script = str(Path(__file__).with_name("lan_peer.py"))
    server = _started("server", script, str(count))
    client = None
    try:
        port = _said(server, "port")
        client = _started("client", script, port, str(path), str(count))
        start = float(_said(client, "start"))
        seconds = float(_said(server, "end")) - start
        return f"{count * len(data) / MiB / seconds:.1f} MiB/s and {count / seconds:.1f} bundles/s"
    except EOFError as error:
        return str(error)
    finally:
        for process in filter(None, (client, server)):
            process.kill()
            process.communicate()


def _started(role: str, script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [str(PEER), "-W", "ignore", script, role, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _said(process: subprocess.Popen[str], word: str) -> str:
    """What stands behind `word` in the process's output; EOFError when it ends or takes too long."""
    assert process.stdout is not None
    alarm = threading.Timer(PEER_SECONDS, process.kill)
    alarm.start()
    line = "nothing"
    try:
        for line in process.stdout:
            if line.startswith(word + " "):
                return line.split()[1]
    finally:
        alarm.cancel()
    raise EOFError(f"did not come to its {word!r} within {PEER_SECONDS} s; it last said: {line.strip()}")


def best(measure: Callable[[], Any], repeats: int) -> Any:
    """The run with the least time."""
    return min((measure() for _ in range(repeats)), key=lambda found: found[0] if isinstance(found, tuple) else found)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024, help="data of the large bundles, in MiB")
    parser.add_argument("--small", type=int, default=20_000, help="number of small bundles")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="where the receiver's spool is")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        root = Path(name)
        make_certificates(root / "certificates")
        large = torch.ones(16 * MiB // 4)
        small = torch.ones(SMALL_BYTES // 4)
        cases = {
            "16 MiB bundles": [bundle(seq, large) for seq in range(given.mib // 16)],
            "48 KiB bundles": [bundle(seq, small) for seq in range(given.small)],
        }
        for title, bundles in cases.items():
            pieces = [memoryview(dump_bundle(bundles[0]))] * len(bundles)
            total = sum(map(len, pieces)) / MiB
            count = min(len(pieces), PEER_BUNDLES)
            print(f"{title}, the peer's client and server, {count} of them: {peer(pieces[0], count, root)}", flush=True)
            for kind, tls in (("plain", ""), ("TLS", str(root / "certificates"))):
                bare = best(lambda tls=tls, pieces=pieces: raw(tls, None, pieces), given.repeats)
                kept = best(lambda tls=tls, pieces=pieces: raw(tls, empty(root / "raw"), pieces), given.repeats)
                empty(root / "raw")
                seconds, _, _ = best(
                    lambda tls=tls, bundles=bundles: ours(tls, Path(empty(root / "spool")), bundles), given.repeats
                )
                print(
                    f"{title}, {kind}: raw {total / bare:.0f} MiB/s, raw+files {total / kept:.0f} MiB/s, "
                    f"spool {total / seconds:.0f} MiB/s and {len(bundles) / seconds:.0f} bundles/s; "
                    f"ratio {bare / seconds:.2f} to raw, {kept / seconds:.2f} to raw+files",
                    flush=True,
                )
        fresh = (bundle(seq, large.clone()) for seq in range(given.mib // 16))
        _, sender, peak = ours("", Path(empty(root / "spool")), fresh)
        print(
            f"memory: the sender's peak +{sender:.0f} MiB while it sent {given.mib} MiB, the receiver's peak {peak:.0f} MiB"
        )


def empty(folder: Path) -> str:
    """The folder, new."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return str(folder)


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()

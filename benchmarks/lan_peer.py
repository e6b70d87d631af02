"""The peer's own client and server on given bytes, run in the peer's environment by benchmarks/lan.py; imports nothing of ours.

`server COUNT` prints its port, then the moment at which it has COUNT payloads in hand (it keeps none, and writes no file).
`client PORT FILE COUNT` prints the moment at which it began and sends FILE so often, until it is killed.
"""

from __future__ import annotations

import queue
import socket
import sys
import time
from pathlib import Path

# As large as the peer's own.
_QUEUE = 50


def serve(count: int) -> None:
    """Take `count` payloads; acknowledgements are the peer's business."""
    from msprobe.pytorch.api_accuracy_checker.tensor_transport_layer.server import TCPServer

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    arrived: queue.Queue[bytes] = queue.Queue(_QUEUE)
    TCPServer(port, arrived, check_sum=True).start()
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    # The connection that looked whether it listens ends as the last one does, with a word of its own.
    arrived.get()
    print("port", port, flush=True)
    for _ in range(count):
        arrived.get()
    print("end", time.monotonic(), flush=True)


def send(port: int, path: str, count: int) -> None:
    """Send the file so often, as fast as the peer's queue takes it."""
    from msprobe.pytorch.api_accuracy_checker.tensor_transport_layer.client import TCPClient

    data = Path(path).read_bytes()
    client = TCPClient("127.0.0.1", port, check_sum=True)
    client.start()
    while not client.tcp_manager.is_connected:
        time.sleep(0.01)
    print("start", time.monotonic(), flush=True)
    for _ in range(count):
        client.add_to_sending_queue(data)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(int(sys.argv[2]))
    else:
        send(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))

"""What each side allows the other, and for how long it waits. Sizes are bytes, times seconds."""

from __future__ import annotations

from dataclasses import dataclass

MiB = 2**20


@dataclass(frozen=True)
class ReceiverLimits:
    """What a receiver lets its peers do.

    A frame may take `idle` seconds and as long as its length needs at `least_rate` bytes a second: a peer that sends a byte
    now and then holds its connection no longer than that. A session without a connection for `lost_after` counts as failed.
    """

    max_bundle: int = 16 * 1024 * MiB
    max_header: int = 16 * MiB
    connections: int = 256
    sessions: int = 10_000
    handshake: float = 10.0
    idle: float = 60.0
    least_rate: int = 16 * 1024
    lost_after: float = 60.0


@dataclass(frozen=True)
class SenderLimits:
    """What a sender keeps and how patient it is.

    At most `window_bytes` in `window_bundles` bundles are unacknowledged; one bundle larger than the window goes alone.
    `connect` is the patience of `open_session`, `silence` that with a connected receiver which says nothing, and `close` that
    of the end while nothing more is acknowledged.
    """

    window_bytes: int = 256 * MiB
    window_bundles: int = 4096
    connect: float = 10.0
    silence: float = 60.0
    close: float = 60.0
    heartbeat: float = 5.0
    retry: tuple[float, float] = (0.05, 5.0)

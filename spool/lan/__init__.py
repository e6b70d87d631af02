"""The spool behind a socket: a sender that is a peer of the directory spool, and a receiver that lands bundles in one."""

from __future__ import annotations

from .limits import ReceiverLimits, SenderLimits
from .receiver import Receiver
from .sender import SocketSpool

__all__ = ["Receiver", "ReceiverLimits", "SenderLimits", "SocketSpool"]

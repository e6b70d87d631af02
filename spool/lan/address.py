"""`tcp://HOST:PORT`, and which addresses are this host's own."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from ..errors import ConfigError


def parse_url(url: str) -> tuple[str, int]:
    """Host and port of `tcp://HOST:PORT`; an IPv6 address stands in brackets. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r}: {error}; write tcp://HOST:PORT, such as tcp://10.0.0.1:59208") from error
    if parts.scheme != "tcp" or port is None or parts.path.strip("/") or parts.query or parts.username:
        raise ConfigError(f"{url!r} is no address; write tcp://HOST:PORT, such as tcp://10.0.0.1:59208")
    return host, port


def url_of(host: str, port: int) -> str:
    """The address as a url."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this host can reach `host`; a name is looked up."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return all(ipaddress.ip_address(str(item[4][0])).is_loopback for item in found)
    except (OSError, ValueError):
        return False

"""The frames of LAN mode, protocol 1: pure encode and parse, no socket.

Every frame is a head of 16 bytes (`SCL1`, kind, three zero bytes, length of the body; big-endian) and a body::

    HELLO      sender    JSON: protocol and who writes (session, rank, host, pid, version, started)
    WELCOME    receiver  JSON: protocol, landed (highest number that is durable), closed, max_bundle
    BUNDLE     sender    number, step, seq, xxh3_64 of the file, length of the API name; the name; the file's bytes
    ACK        receiver  number: this bundle and all before it are durable in the receiver's spool
    FULL       receiver  JSON: reason; nothing is read until there is room again
    HEARTBEAT  sender    JSON: counts; answered by ACK
    CLOSE      sender    JSON: state (closed | failed), counts; after the last bundle
    CLOSED     receiver  the session's record is written
    REFUSED    receiver  JSON: reason, number (the bundle, or null), final (do not come back); the connection ends

Numbers grow within a session and are the sender's own; they say nothing about steps. A frame that breaks a rule ends the
connection that it came by and nothing else. docs/lan-protocol.md has the whole.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from ..interface import COUNTS, SessionInfo
from ..names import is_api, is_session

PROTOCOL = 1
MAGIC = b"SCL1"
_HEAD = struct.Struct("!4sB3sQ")
_BUNDLE = struct.Struct("!QIIQH")
_NUMBER = struct.Struct("!Q")
HEAD_SIZE = _HEAD.size
BUNDLE_HEAD_SIZE = _BUNDLE.size
# The most that any body but a bundle's may take.
MAX_CONTROL = 64 * 1024
_MOST = 10**9
_TEXT = 200


class ProtocolError(ValueError):
    """A peer broke the protocol; the message says which rule."""


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 1
    WELCOME = 2
    BUNDLE = 3
    ACK = 4
    FULL = 5
    HEARTBEAT = 6
    CLOSE = 7
    CLOSED = 8
    REFUSED = 9


@dataclass(frozen=True)
class BundleHead:
    """What a BUNDLE frame says before the file's bytes."""

    number: int
    step: int
    seq: int
    digest: int
    api_size: int


@dataclass(frozen=True)
class Welcome:
    """What the receiver knows of a session: where to go on."""

    landed: int
    closed: bool
    max_bundle: int


@dataclass(frozen=True)
class Refusal:
    """Why a connection ends; `final` when coming back cannot help."""

    reason: str
    number: int | None = None
    final: bool = False


def head(kind: Kind, length: int) -> bytes:
    """The 16 bytes before a body."""
    return _HEAD.pack(MAGIC, kind, b"\0\0\0", length)


def parse_head(data: bytes | memoryview) -> tuple[Kind, int]:
    """Kind and length of the body; a control frame's length is checked here."""
    magic, number, zero, length = _HEAD.unpack(data)
    if magic != MAGIC:
        raise ProtocolError(f"starts with {magic!r}, not {MAGIC!r}: no spool-check, or TLS on one side only")
    if zero != b"\0\0\0":
        raise ProtocolError(f"has {zero!r} where three zero bytes belong")
    try:
        kind = Kind(number)
    except ValueError as error:
        raise ProtocolError(f"is of kind {number}, which protocol {PROTOCOL} does not have") from error
    if kind is not Kind.BUNDLE and length > MAX_CONTROL:
        raise ProtocolError(f"{kind.name} of {length} bytes; at most {MAX_CONTROL} are allowed")
    return kind, length


def control(kind: Kind, value: Mapping[str, Any]) -> bytes:
    """A whole frame whose body is JSON."""
    body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    return head(kind, len(body)) + body


def ack(number: int) -> bytes:
    """A whole ACK frame."""
    return head(Kind.ACK, _NUMBER.size) + _NUMBER.pack(number)


def parse_ack(body: bytes) -> int:
    """The number that an ACK acknowledges."""
    if len(body) != _NUMBER.size:
        raise ProtocolError(f"ACK of {len(body)} bytes; it has {_NUMBER.size}")
    return int(_NUMBER.unpack(body)[0])


def bundle_head(number: int, step: int, seq: int, api: str, digest: int, size: int) -> bytes:
    """Everything of a BUNDLE frame before the file's bytes."""
    name = api.encode("ascii")
    return (
        head(Kind.BUNDLE, BUNDLE_HEAD_SIZE + len(name) + size)
        + _BUNDLE.pack(number, step, seq, digest, len(name))
        + name
    )


def parse_bundle_head(data: bytes | memoryview) -> BundleHead:
    """The fixed part of a BUNDLE frame."""
    number, step, seq, digest, api_size = _BUNDLE.unpack(data)
    if number == 0:
        raise ProtocolError("bundle number 0; they start at 1")
    if step >= _MOST or seq >= _MOST:
        raise ProtocolError(f"step {step}, seq {seq}: both must be below {_MOST}")
    return BundleHead(number, step, seq, digest, api_size)


def parse_api(data: bytes) -> str:
    """An API name, which becomes part of a file name."""
    name = data.decode("ascii", "replace")
    if not is_api(name):
        raise ProtocolError(f"API name {name[:_TEXT]!r}; it must look like Functional.linear.4")
    return name


def hello(info: SessionInfo) -> bytes:
    """A whole HELLO frame."""
    return control(Kind.HELLO, {"protocol": PROTOCOL, **asdict(info)})


def parse_hello(body: bytes) -> SessionInfo:
    """Who writes. Another protocol is refused by its number before anything else is looked at."""
    value = _object(Kind.HELLO, body)
    protocol = value.get("protocol")
    if protocol != PROTOCOL:
        theirs = str(value.get("version"))[:_TEXT]
        raise ProtocolError(
            f"HELLO speaks protocol {str(protocol)[:_TEXT]} (spool-check {theirs}), this side speaks {PROTOCOL}; "
            "use the same version of spool-check on both hosts"
        )
    session, rank, started = value.get("session"), value.get("rank"), value.get("started")
    if not isinstance(session, str) or not is_session(session):
        raise ProtocolError(
            f"HELLO with session {str(session)[:_TEXT]!r}: letters, digits, '.', '_' and '-' are allowed"
        )
    if type(rank) is not int or not 0 <= rank < _MOST:
        raise ProtocolError(f"HELLO with rank {str(rank)[:_TEXT]}; it must be an integer from 0 to {_MOST - 1}")
    if isinstance(started, bool) or not isinstance(started, int | float) or not math.isfinite(started):
        raise ProtocolError("HELLO without the time at which the session started")
    host, pid, version = value.get("host"), value.get("pid"), value.get("version")
    if not isinstance(host, str) or not isinstance(version, str) or type(pid) is not int:
        raise ProtocolError("HELLO without host, pid or version")
    return SessionInfo(session, rank, host[:_TEXT], pid, version[:_TEXT], float(started))


def welcome(value: Welcome) -> bytes:
    """A whole WELCOME frame."""
    return control(Kind.WELCOME, {"protocol": PROTOCOL, **asdict(value)})


def parse_welcome(body: bytes) -> Welcome:
    """What the receiver knows of the session."""
    value = _object(Kind.WELCOME, body)
    landed, closed, most = value.get("landed"), value.get("closed"), value.get("max_bundle")
    if (
        value.get("protocol") != PROTOCOL
        or type(landed) is not int
        or not isinstance(closed, bool)
        or type(most) is not int
    ):
        raise ProtocolError(f"WELCOME of another protocol than {PROTOCOL}, or without landed, closed or max_bundle")
    return Welcome(landed, closed, most)


def refused(value: Refusal) -> bytes:
    """A whole REFUSED frame."""
    return control(Kind.REFUSED, {**asdict(value), "reason": value.reason[:1000]})


def parse_refusal(body: bytes) -> Refusal:
    """Why the receiver ends the connection."""
    value = _object(Kind.REFUSED, body)
    number = value.get("number")
    return Refusal(str(value.get("reason"))[:1000], number if type(number) is int else None, value.get("final") is True)


def full(reason: str) -> bytes:
    """A whole FULL frame."""
    return control(Kind.FULL, {"reason": reason[:1000]})


def parse_full(body: bytes) -> str:
    """Why the receiver does not read on."""
    return str(_object(Kind.FULL, body).get("reason"))[:1000]


def heartbeat(counts: Mapping[str, int]) -> bytes:
    """A whole HEARTBEAT frame."""
    return control(Kind.HEARTBEAT, {"counts": dict(counts)})


def parse_heartbeat(body: bytes) -> dict[str, int]:
    """The sender's counts."""
    return _counts(Kind.HEARTBEAT, _object(Kind.HEARTBEAT, body))


def close(state: str, counts: Mapping[str, int]) -> bytes:
    """A whole CLOSE frame."""
    return control(Kind.CLOSE, {"state": state, "counts": dict(counts)})


def parse_close(body: bytes) -> tuple[str, dict[str, int]]:
    """How the session ended, and its last counts."""
    value = _object(Kind.CLOSE, body)
    state = value.get("state")
    if not isinstance(state, str) or state not in ("closed", "failed"):
        raise ProtocolError(f"CLOSE with state {str(state)[:_TEXT]!r}; it must be closed or failed")
    return state, _counts(Kind.CLOSE, value)


def _object(kind: Kind, body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{kind.name} is no JSON") from error
    if not isinstance(value, dict):
        raise ProtocolError(f"{kind.name} is no JSON object")
    return value


def _counts(kind: Kind, value: Mapping[str, Any]) -> dict[str, int]:
    counts = value.get("counts")
    if not isinstance(counts, dict):
        raise ProtocolError(f"{kind.name} without counts")
    # Counts that this version does not know are passed over.
    found = {name: counts[name] for name in COUNTS if name in counts}
    if not all(type(number) is int and 0 <= number < 2**63 for number in found.values()):
        raise ProtocolError(f"{kind.name} with counts that are no numbers")
    return found

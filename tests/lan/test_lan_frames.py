"""Frames: what is encoded comes back, and whatever else comes is refused by a ProtocolError and nothing else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spool_bundles import info

from spool.lan import frames
from spool.lan.frames import BUNDLE_HEAD_SIZE, HEAD_SIZE, Kind, ProtocolError, Refusal, Welcome

COUNTS = {"seen": 3, "published": 2}


def body(frame: bytes) -> bytes:
    kind, length = frames.parse_head(frame[:HEAD_SIZE])
    assert length == len(frame) - HEAD_SIZE, kind
    return frame[HEAD_SIZE:]


ROUND_TRIPS: dict[str, tuple[bytes, Callable[[bytes], Any], Any]] = {
    "hello": (frames.hello(info()), frames.parse_hello, info()),
    "welcome": (frames.welcome(Welcome(7, True, 99)), frames.parse_welcome, Welcome(7, True, 99)),
    "ack": (frames.ack(2**40), frames.parse_ack, 2**40),
    "full": (frames.full("disk"), frames.parse_full, "disk"),
    "heartbeat": (frames.heartbeat(COUNTS), frames.parse_heartbeat, COUNTS),
    "close": (frames.close("failed", COUNTS), frames.parse_close, ("failed", COUNTS)),
    "refused": (frames.refused(Refusal("no", 3, True)), frames.parse_refusal, Refusal("no", 3, True)),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_what_is_encoded_comes_back(name: str) -> None:
    frame, parse, value = ROUND_TRIPS[name]
    assert parse(body(frame)) == value


def test_a_bundle_head_comes_back() -> None:
    start = frames.bundle_head(5, 1, 2, "Torch.add.3", 2**63, 100)
    assert frames.parse_head(start[:HEAD_SIZE]) == (Kind.BUNDLE, len(start) - HEAD_SIZE + 100)
    head = frames.parse_bundle_head(start[HEAD_SIZE : HEAD_SIZE + BUNDLE_HEAD_SIZE])
    assert (head.number, head.step, head.seq, head.digest) == (5, 1, 2, 2**63)
    assert frames.parse_api(start[HEAD_SIZE + BUNDLE_HEAD_SIZE :]) == "Torch.add.3"


def hello(**changes: Any) -> bytes:
    return json.dumps({**json.loads(body(frames.hello(info()))), **changes}).encode()


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a TLS record": (lambda: frames.parse_head(b"\x16\x03\x01" + bytes(13)), "TLS on one side only"),
    "an HTTP request": (lambda: frames.parse_head(b"GET / HTTP/1.1\r\n"), "no spool-check"),
    "an unknown kind": (lambda: frames.parse_head(b"SCL1\x63" + bytes(11)), "kind 99"),
    "filled padding": (lambda: frames.parse_head(b"SCL1\x01\0\0\1" + bytes(8)), "zero bytes"),
    "a huge control frame": (lambda: frames.parse_head(frames.head(Kind.HELLO, 2**40)), "at most 65536"),
    "another protocol": (lambda: frames.parse_hello(hello(protocol=2)), "protocol 2.*same version"),
    "a session with a path": (lambda: frames.parse_hello(hello(session="../x")), "session '../x'"),
    "a negative rank": (lambda: frames.parse_hello(hello(rank=-1)), "rank -1"),
    "a rank that is true": (lambda: frames.parse_hello(hello(rank=True)), "rank True"),
    "no JSON": (lambda: frames.parse_hello(b"\xff"), "no JSON"),
    "nested too deep": (lambda: frames.parse_close(b"[" * 60000), "no JSON"),
    "a list": (lambda: frames.parse_heartbeat(b"[]"), "no JSON object"),
    "counts of text": (lambda: frames.parse_heartbeat(b'{"counts": {"seen": "1"}}'), "no numbers"),
    "an open close": (lambda: frames.parse_close(b'{"state": "open", "counts": {}}'), "closed or failed"),
    "an API name with a path": (lambda: frames.parse_api(b"Torch.add.0/../../x"), "must look like"),
    "an API name with a zero": (lambda: frames.parse_api(b"Torch.add\0.0"), "must look like"),
    "an API name too long": (lambda: frames.parse_api(b"Torch." + b"a" * 500 + b".0"), "must look like"),
    "bundle number 0": (lambda: frames.parse_bundle_head(bytes(BUNDLE_HEAD_SIZE)), "start at 1"),
    "a huge step": (lambda: frames.parse_bundle_head(bytes(7) + b"\1" + b"\xff" * 18), "must be below"),
    "a short ack": (lambda: frames.parse_ack(b"123"), "3 bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_breaks_a_rule_is_refused_in_words(name: str) -> None:
    act, text = REFUSED[name]
    with pytest.raises(ProtocolError, match=text):
        act()


PARSERS = [
    frames.parse_hello, frames.parse_welcome, frames.parse_ack, frames.parse_full,
    frames.parse_heartbeat, frames.parse_close, frames.parse_refusal, frames.parse_api,
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
KEYS = st.sampled_from(
    ["protocol", "session", "rank", "host", "pid", "version", "started", "counts", "state", "landed"]
)


# On a busy machine the first example alone may take seconds.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.binary(max_size=200) | st.dictionaries(KEYS, JSON | st.just(1)).map(lambda v: json.dumps(v).encode()))
def test_random_bodies_are_parsed_or_refused(data: bytes) -> None:
    for parse in PARSERS:
        with contextlib.suppress(ProtocolError):
            parse(data)


@given(
    data=st.binary(min_size=HEAD_SIZE, max_size=HEAD_SIZE) | st.binary(min_size=12, max_size=12).map(b"SCL1".__add__)
)
def test_random_heads_are_parsed_or_refused(data: bytes) -> None:
    try:
        kind, length = frames.parse_head(data)
    except ProtocolError:
        return
    assert kind is Kind.BUNDLE or length <= frames.MAX_CONTROL

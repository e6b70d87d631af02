"""Joining an existing Ray cluster: its address, and what it has to judge on."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import warnings
from typing import Any

from spool import ConfigError, SpoolError

_CONNECT_SECONDS = 5.0
_KIND_OF_DEVICE = {"cpu": "CPU", "cuda": "GPU", "npu": "NPU"}


def join(address: str) -> Any:
    """The module `ray`, connected. ConfigError for an address of no known form, SpoolError when nothing answers there."""
    # Ray reads it once, when it is loaded, and waits for minutes otherwise where something else listens.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError("engine = 'ray': Ray is not installed here; pip install 'spool-check[ray]'") from error
    if address != "auto":
        _knock(address)
    # Ray sets its own; ours finish the bundles in hand first.
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # This process has its own log; those of the cluster lie where its nodes write them.
    quiet = {"configure_logging": False, "log_to_driver": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address=address, **quiet)
    except Exception as error:
        why = str(error).strip().partition("\n")[0][:300]
        raise SpoolError(
            f"address {address!r}: no Ray cluster could be joined: {type(error).__name__}: {why}; check `ray status` on that "
            "host, that this host is a node of the cluster or the address begins with ray://, that both run the same Ray, "
            "and, where the cluster asks for a token, that this shell has it (RAY_AUTH_MODE, RAY_AUTH_TOKEN)"
        ) from error
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
    return ray


def check(device: str, workers: int | None) -> None:
    """Raise ConfigError for options that have no meaning on a Ray cluster."""
    if device not in ("auto", *_KIND_OF_DEVICE):
        raise ConfigError(f"device = {device!r}: Ray gives each worker its device; use auto, cpu, cuda or npu")
    if workers == 0:
        raise ConfigError(
            "workers = 0: judges in this process, which engine = 'ray' does not; give 1 or more, or leave it out"
        )


def places(ray: Any, device: str, workers: int | None) -> tuple[str, str, int]:
    """Kind of device, Ray's name of that resource, and how many actors judge: one a device, or one a node without any."""
    kind = device
    total = ray.cluster_resources()
    if kind == "auto":
        kind = next((name for name in ("cuda", "npu") if total.get(_KIND_OF_DEVICE[name])), "cpu")
    resource = _KIND_OF_DEVICE[kind]
    if not total.get(resource):
        raise SpoolError(f"device = {device!r}: the Ray cluster has no {resource}; use auto or cpu, or add such a node")
    nodes = sum(bool(node["Alive"]) for node in ray.nodes())
    return kind, resource, workers or (nodes if kind == "cpu" else int(total[resource]))


def _knock(address: str) -> None:
    """Ray itself tries for minutes; an address at which nobody listens is known at once."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"address = {address!r}: no address of a Ray cluster; use HOST:PORT, ray://HOST:PORT, or auto for the one that "
            "this host belongs to"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise SpoolError(
            f"address {address!r}: does not answer: {why}; is the cluster up (`ray status`), and can this host reach it?"
        ) from error

"""Which process a record is about, so that its end can be seen from the same machine."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def this_process() -> dict[str, Any]:
    """This process, told apart from every other of any host, boot, container and time."""
    return {
        "host": socket.gethostname(),
        "boot": _boot_id(),
        "namespace": _namespace(),
        "pid": os.getpid(),
        "start": _start_of(os.getpid()),
    }


def is_gone(record: Mapping[str, Any]) -> bool:
    """Whether the process of a record is known to have ended: same boot, same process namespace, and no such process."""
    boot, namespace, pid, start = (record.get(key) for key in ("boot", "namespace", "pid", "start"))
    if not boot or not namespace or not start or type(pid) is not int:
        return False
    # Two containers of one host share the boot but do not see each other's processes.
    return bool(boot == _boot_id()) and namespace == _namespace() and _start_of(pid) != start


def parse_record(content: bytes) -> dict[str, Any]:
    """A JSON record as a dict; empty when it is none."""
    try:
        record = json.loads(content)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _namespace() -> str:
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _start_of(pid: int) -> str:
    """When a process started, in clock ticks: tells it from a later one of that number. Empty when it has ended."""
    with contextlib.suppress(OSError, IndexError):
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state in "ZX" else rest[18]
    return ""

"""This host: versions, the device that calls would be replayed on, and whose modules Python would import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from comparators.native import library
from spool import ConfigError, __version__

from ..device import worker_devices
from .findings import Finding, fail, ok, warn

OURS = ("spool_check", "spool", "spool_writer", "spool_reader", "comparators", "fused_ops", "cli")
# As a script beside other files would find them: from the current folder first.
_FIND = """
import importlib.util, json, sys
found = {}
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    found[name] = None if spec is None else spec.origin or (list(spec.submodule_search_locations or []) or [None])[0]
print(json.dumps(found))
"""


def host_checks() -> Iterator[Finding]:
    """Versions, device, compiled loops, import names."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield ok("versions", f"spool-check {__version__}, Python {python}, torch {torch.__version__}")
    try:
        device = worker_devices("auto", 1)[0]
        yield ok("device", f"calls are replayed on {device.name if hasattr(device, 'name') else device}")
    except ConfigError as error:
        yield fail("device", str(error), "repair the driver, or give --device cpu")
    if library() is None:
        yield warn(
            "metrics", "no C compiler: NumPy makes the metrics, three to ten times slower", "install cc (gcc or clang)"
        )
    else:
        yield ok("metrics", "compiled loops")
    yield _import_names()


def _import_names() -> Finding:
    home = Path(__file__).resolve().parents[2]
    # Without -P or -I: that is how a user's script runs.
    run = subprocess.run(
        [sys.executable, "-c", _FIND, *OURS], capture_output=True, text=True, timeout=60, cwd=os.getcwd(), check=False
    )
    try:
        found: dict[str, str | None] = json.loads(run.stdout)
    except ValueError:
        return warn("import names", f"Python could not be asked: {run.stderr.strip()[-200:]}", "check the installation")
    hidden = [
        f"{name} is {place or 'not found'}"
        for name, place in found.items()
        if place is None or not Path(place).resolve().is_relative_to(home)
    ]
    if not hidden:
        return ok("import names", f"all of {home}")
    return fail(
        "import names",
        f"from {os.getcwd()} Python would import others: {'; '.join(hidden)}",
        "rename the folder or file beside the script, or start from another folder",
    )

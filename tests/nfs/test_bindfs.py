"""The quick form of `make test-nfs`: two FUSE mounts of one folder, with stale lookups and no events from the other side."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import ROOT, environment

# Names and attributes are believed for three seconds, as by an NFS client with short caching.
CACHING = "attr_timeout=3,entry_timeout=3,negative_timeout=3,ac_attr_timeout=3"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    if shutil.which("bindfs") is None:
        pytest.skip("bindfs is not installed")
    back, mounts = tmp_path / "back", (tmp_path / "a", tmp_path / "b")
    back.mkdir()
    mounted = []
    try:
        for mount in mounts:
            mount.mkdir()
            done = subprocess.run(["bindfs", "-o", CACHING, str(back), str(mount)], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"FUSE is not available: {done.stderr.strip()}")
            mounted.append(mount)
        yield mounts
    finally:
        for mount in mounted:
            subprocess.run(["umount", "-l", str(mount)], check=False)


@pytest.mark.timeout(280)
@pytest.mark.parametrize("scenario", ["flow", "crash"])
def test_two_mounts(scenario: str, pair: tuple[Path, Path]) -> None:
    if subprocess.run(["unshare", "-u", "true"], capture_output=True).returncode:
        pytest.skip("no other host name can be set here (unshare -u)")
    env = {**environment(), "NFS_A": os.fspath(pair[0]), "NFS_B": os.fspath(pair[1])}
    command = [sys.executable, str(ROOT / "tests" / "nfs" / "scenarios.py"), scenario]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=260)
    assert run.returncode == 0, run.stdout + run.stderr

"""The short form of `make torture`: real processes, killed and paused at random, and a disk that fills up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from torture import Torture

SEED = int(os.environ.get("SPOOL_CHECK_TORTURE_SEED", "20261201"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "mount"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(mount)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.mark.timeout(280)
def test_nothing_is_lost_and_nothing_judged_twice(tmp_path: Path) -> None:
    torture = Torture(tmp_path, bundles=300, writers=2, readers=2, seed=SEED)
    assert torture.run(180) == [], f"seed {SEED}"
    assert torture.blows.total() > 0


@pytest.mark.slow
@pytest.mark.timeout(580)
def test_nothing_is_lost_on_a_disk_that_fills_up(tmp_path: Path, small_disk: Path) -> None:
    torture = Torture(tmp_path, bundles=1500, writers=2, readers=2, seed=SEED, small_disk=small_disk)
    assert torture.run(500) == [], f"seed {SEED}"
    assert torture.blows["fill"] > 0

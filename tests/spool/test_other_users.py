"""Who may read and write what is in a spool: mode, umask, group, other users."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import environment
from spool_bundles import call

from spool import ConfigError, SessionInfo, SpoolOptions, open_spool

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
OTHER, GROUP = 54321, 54322


@pytest.fixture(params=[0o022, 0o077, 0o007], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def publish(root: Path, **options: object) -> Path:
    """One bundle in a new session; its file."""
    with open_spool(root, create=True, options=SpoolOptions(**options)) as spool:  # type: ignore[arg-type]
        session = spool.open_session(SessionInfo("s1", 0, "host", 1, "0", 0.0))
        spool.publish(call(0))
        session.close("closed", {})
    [path] = root.rglob("*.safetensors")
    return path


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o600, 0o666])
def test_files_and_folders_have_the_mode_of_the_configuration(mode: int, umask: int, tmp_path: Path) -> None:
    path = publish(tmp_path / "spool", mode=mode)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    for folder in (path.parent, path.parent.parent):
        has = stat.S_IMODE(folder.stat().st_mode)
        # Who may read the files may list the folders, and who may write the files may move them.
        for shift in (0, 3, 6):
            if mode >> shift & 0o4:
                assert has >> shift & 0o5 == 0o5
            if mode >> shift & 0o2:
                assert has >> shift & 0o3 == 0o3


AS_OTHER = """
import os, sys
from spool import open_spool
# Python itself may lie where only root can read: everything is loaded before.
import filelock, spool.janitor
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[3]))
with open_spool(sys.argv[1]) as spool:
    claim = spool.claim()
    print(claim.load().header.api, claim.done())
"""


def judge_as(root: Path, group: int, user: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", AS_OTHER, str(root), str(group), str(user)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)


@pytest.fixture
def seen_by_all() -> Iterator[Path]:
    """A folder that other users reach: pytest's own are below one that only its owner enters."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@ROOT_ONLY
def test_another_user_of_the_group_judges(seen_by_all: Path) -> None:
    root = seen_by_all / "spool"
    path = publish(root, mode=0o660, group=str(GROUP))
    assert path.stat().st_gid == GROUP
    run = judge_as(root, GROUP, OTHER)
    assert run.stdout == "Torch.add.0 True\n", run.stderr
    assert not list(root.rglob("*.safetensors"))


@ROOT_ONLY
def test_a_user_without_the_right_is_told(seen_by_all: Path) -> None:
    root = seen_by_all / "spool"
    publish(root, mode=0o640)
    run = judge_as(root, OTHER, OTHER)
    assert run.returncode != 0
    assert "not readable and writable for this user" in run.stderr


def test_a_group_that_does_not_exist_is_a_wrong_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no group of this host"):
        open_spool(tmp_path / "spool", create=True, options=SpoolOptions(group="no-such-group-here"))

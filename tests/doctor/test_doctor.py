"""`spool-check doctor`: what it says of good and of bad places, and that it leaves them as they were."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import environment

from spool import files
from spool_reader.doctor import Finding, diagnose, finding_lines, race, storage, timing
from spool_reader.doctor import mounts as mounts_module


def states(spool: Path | None) -> dict[str, str]:
    return {finding.check: finding.state for finding in diagnose(spool)}


def test_a_good_directory(tmp_path: Path) -> None:
    found = list(diagnose(tmp_path))
    assert {finding.state for finding in found} <= {"ok", "warn"}
    checks = [finding.check for finding in found]
    expected = ["versions", "device", "metrics", "import names", "file system", "permissions", "space", "rename"]
    assert [check for check in checks if check in expected] == expected
    assert {"claim race", "visibility", "events", "clock", "janitor lock"} <= set(checks)
    assert os.listdir(tmp_path) == []
    assert all(finding.remedy for finding in found if finding.state != "ok")


MOUNTS: dict[str, tuple[tuple[str, str], dict[str, str]]] = {
    "nfs 4.2 with defaults": (("nfs4", "rw,vers=4.2,hard,local_lock=none"), {"nfs caching": "warn"}),
    "nfs 4.2 as advised": (("nfs4", "rw,vers=4.2,hard,lookupcache=pos"), {"nfs options": "ok"}),
    "nfs 4.2, short caching": (("nfs4", "rw,vers=4.2,hard,acdirmin=1"), {"nfs options": "ok"}),
    "nfs 3": (("nfs", "rw,vers=3,hard,noac"), {"nfs version": "warn"}),
    "soft": (("nfs4", "rw,vers=4.1,soft,noac"), {"nfs errors": "warn"}),
    "nolock": (("nfs", "rw,vers=3,nolock,hard,noac,local_lock=all"), {"nfs version": "warn", "nfs locks": "warn"}),
    "ext4": (("ext4", "rw"), {}),
    "tmpfs": (("tmpfs", "rw"), {}),
}


@pytest.mark.parametrize("name", sorted(MOUNTS))
def test_mounts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount, expected = MOUNTS[name]
    monkeypatch.setattr(files, "file_system", lambda path: mount)
    monkeypatch.setattr(mounts_module, "file_system", lambda path: mount)
    found = {f.check: f.state for f in mounts_module.mount_checks(tmp_path) if f.check.startswith("nfs")}
    assert found == expected
    events = mounts_module.watch_mode(tmp_path)
    assert ("do not arrive" in events) == mount[0].startswith("nfs")


def broken(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, number: int) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(number, os.strerror(number), str(args[0]))

    monkeypatch.setattr(module.os, name, refuse)


def test_a_rename_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, storage, "rename", errno.EXDEV)
    found = {f.check: f for f in diagnose(tmp_path)}
    assert found["write"].state == "fail"
    assert "cross-device" in found["write"].detail.lower()


def test_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "free", lambda path: (10 * 2**20, 10))
    found = {f.check: f.state for f in storage.room_checks(tmp_path)}
    assert found == {"space": "fail", "inodes": "warn"}


def test_two_winners_of_one_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A file system whose rename succeeds for both: the racers copy.
    monkeypatch.setattr(race, "_RACER", race._RACER.replace("os.rename(", "__import__('shutil').copyfile("))
    [found] = race.claim_race(tmp_path)
    assert found.state == "fail"
    assert "200 + 200 of 200" in found.detail


def test_a_directory_that_is_slow_to_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(timing, "_SLOW_S", 0.05)
    monkeypatch.setattr(timing, "_WRITER", "pass")
    found = {f.check: f for f in timing.timing_checks(tmp_path)}
    assert found["visibility"].state == found["events"].state == found["clock"].state == "warn"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_of_somebody_else(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert states(tmp_path)["permissions"] == "fail"


def test_a_sticky_directory_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777 | stat.S_ISVTX)
    monkeypatch.setattr(storage.os, "geteuid", lambda: 12345)
    [found] = storage.permission_checks(tmp_path)
    assert found.state == "warn"
    assert "cannot be moved" in found.detail


def doctor(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spool_check", "doctor", *words]
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=120)


Runner = Callable[..., subprocess.CompletedProcess[str]]


def test_the_command(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    run = doctor(str(spool), "--json", cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    found = [Finding(**json.loads(line)) for line in run.stdout.splitlines()]
    assert {finding.state for finding in found} <= {"ok", "warn"}
    missing = doctor(str(tmp_path / "nowhere"), cwd=tmp_path)
    assert missing.returncode == 3
    assert "fail  directory" in missing.stdout
    assert "→ make it, or mount" in missing.stdout


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs python -P")
def test_a_folder_beside_the_script_that_hides_ours(tmp_path: Path) -> None:
    (tmp_path / "comparators").mkdir()
    (tmp_path / "comparators" / "__init__.py").touch()
    program = "from spool_reader.doctor.host import _import_names; print(_import_names().state)"
    # What asks is found by PYTHONPATH; what it asks starts in this folder, as a script there would.
    run = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.stdout == "fail\n", run.stderr


def test_lines_are_safe_to_print() -> None:
    [line, remedy, total] = finding_lines([Finding("x", "warn", "\x1b[31mred\n", "do")])
    assert "\x1b" not in line
    assert remedy.strip() == "→ do"
    assert total == "0 ok, 1 warn, 0 fail"

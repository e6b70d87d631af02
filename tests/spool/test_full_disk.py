"""A spool whose file system is really full: nothing half-written is seen, and readers drain it all the same."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from spool_bundles import PLAIN, call, drain, files_below, info, taken

from spool import Spool, SpoolFull, SpoolUnavailable, files, open_spool

OPTIONS = replace(PLAIN, fsync="bundle", stale_after=0.6)
MIB = 2**20


def _mounted(command: list[str], mount: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    done = subprocess.run([*command, str(mount)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")


@pytest.fixture(params=["tmpfs", "ext4"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of a few MiB of its own."""
    mount = tmp_path / "mount"
    mount.mkdir()
    if request.param == "tmpfs":
        _mounted(["mount", "-t", "tmpfs", "-o", "size=6m", "none"], mount)
    else:
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("mkfs.ext4 is not installed")
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(12 * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
        _mounted(["mount", "-o", "loop", str(image)], mount)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def fill(folder: Path) -> None:
    """Take every block that is left."""
    fd = os.open(folder / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with contextlib.suppress(OSError):
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(fd, b"x" * size)
        os.fsync(fd)
    os.close(fd)


def publish_until_full(spool: Spool) -> int:
    published: list[int] = []

    def publish() -> None:
        for seq in range(100):
            spool.publish(call(seq, torch.zeros(MIB // 8), step=seq // 4))
            published.append(seq)

    with pytest.raises(SpoolFull, match="free some space"):
        publish()
    return len(published)


def test_nothing_half_written_is_seen_and_a_new_reader_drains_all(small: Path) -> None:
    with open_spool(small / "spool", create=True, options=OPTIONS) as writer:
        session = writer.open_session(info())
        published = publish_until_full(writer)
        assert published > 4
        assert not [name for name in files_below(small / "spool") if name.endswith(".tmp")]
        fill(small)
        with pytest.raises(SpoolFull, match="session record"):
            session.heartbeat({"seen": published})
        with open_spool(small / "spool", options=OPTIONS) as reader:
            keys = drain(reader)
        assert [seq for *_, seq in keys] == list(range(published))
        assert (small / "spool" / "spare").stat().st_size == 64 * 2**10, "set aside again for the next time"
        assert writer.publish(call(published, step=100))
        session.close()


def test_a_reader_that_was_there_before_stays_alive(small: Path) -> None:
    with open_spool(small / "spool", create=True, options=OPTIONS) as spool:
        spool.open_session(info())
        spool.publish(call(0))
        assert taken(spool).done()
        before = spool._consumer.own
        published = publish_until_full(spool)
        fill(small)
        time.sleep(2 * OPTIONS.stale_after)
        with open_spool(small / "spool", options=OPTIONS) as observer:
            assert observer.stats().ready == published
        assert len(drain(spool)) == published
        assert spool._consumer.own == before, "its sign of life went on"


def test_without_spare_room_a_new_reader_says_what_is_wrong(small: Path) -> None:
    with open_spool(small / "spool", create=True, options=OPTIONS) as writer:
        writer.open_session(info())
        publish_until_full(writer)
        (small / "spool" / "spare").unlink()
        fill(small)
        with (
            open_spool(small / "spool", options=OPTIONS) as reader,
            pytest.raises(SpoolUnavailable, match="No space left"),
        ):
            reader.claim()


def test_a_take_back_that_has_no_room_does_not_hold_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with open_spool(tmp_path, options=OPTIONS) as writer:
        writer.open_session(info())
        for step in (0, 1):
            writer.publish(call(0, step=step))
        dead = open_spool(tmp_path, options=OPTIONS)
        assert taken(dead).step == 0
        dead._consumer._heartbeat.stop(remove=False)  # type: ignore[attr-defined]
        (tmp_path / "rank0" / "step0").rmdir()
        make = files.make_folder
        blocked = [True]

        def no_room(path: Any, mode: int) -> bool:
            if blocked[0] and str(path).endswith("step0"):
                raise OSError(errno.ENOSPC, "No space left on device")
            return make(path, mode)

        monkeypatch.setattr(files, "make_folder", no_room)
        with open_spool(tmp_path, options=OPTIONS) as reader:
            assert reader.claim() is not None, "what is ready comes at once"
            deadline = time.monotonic() + 20
            while "could not be taken back yet" not in caplog.text and time.monotonic() < deadline:
                assert reader.claim(0.1) is None
            for _ in range(5):
                assert reader.claim(0.1) is None
            assert caplog.text.count("could not be taken back yet") == 1
            blocked[0] = False
            again = taken(reader, 20)
            assert (again.step, again.attempt) == (0, 1)


@pytest.mark.parametrize("end", ["fail", "release"])
def test_a_move_that_happened_though_it_failed_is_recognised(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_spool(tmp_path, options=OPTIONS) as spool:
        spool.open_session(info())
        spool.publish(call(0))
        claim = taken(spool)
        rename = files.rename

        def lost_reply(source: Any, target: Any) -> None:
            rename(source, target)
            if Path(target).name.endswith(".safetensors"):
                raise OSError(errno.EIO, "lost reply")

        with monkeypatch.context() as patch:
            patch.setattr(files, "rename", lost_reply)
            if end == "fail":
                # The folder is missing at first, so the first rename fails for a true reason.
                claim.fail("bad")
            else:
                claim.release()
        assert spool.stats().fenced == 0
        if end == "fail":
            assert files_below(tmp_path / "quarantine")[0].endswith(".json"), "the reason lies beside it"
        else:
            assert taken(spool).attempt == 0

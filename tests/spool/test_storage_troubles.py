"""Shared storage that goes away for a while, hides files, runs out of inodes, or holds very many folders."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from spool_bundles import PLAIN, call

from spool import SessionInfo, SpoolOptions, SpoolUnavailable, files, listing, open_spool, room


def publish(root: Path, *calls: Any, options: SpoolOptions = PLAIN) -> list[bool]:
    """Publish bundles in one session that is closed afterwards."""
    with open_spool(root, create=True, options=options) as spool:
        session = spool.open_session(SessionInfo("s1", 0, "host", 1, "0", 0.0))
        kept = [spool.publish(bundle) for bundle in calls]
        session.close("closed", {})
    return kept


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EHOSTDOWN, errno.ETIMEDOUT])
def test_an_outage_during_a_claim_is_waited_for(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "spool"
    publish(root, call(0))
    with open_spool(root, options=PLAIN) as spool:
        names, outage = files.names, iter(range(4))

        def flaky(folder: Any) -> list[str]:
            if next(outage, None) is not None:
                raise OSError(number, os.strerror(number))
            return names(folder)

        monkeypatch.setattr(files, "names", flaky)
        claim = spool.claim(timeout=30)
        assert claim is not None
        assert claim.done()


def test_an_outage_that_lasts_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "spool"
    publish(root, call(0))
    with open_spool(root, options=PLAIN) as spool:

        def down(folder: Any) -> list[str]:
            raise OSError(errno.EHOSTDOWN, os.strerror(errno.EHOSTDOWN))

        with monkeypatch.context() as patch:
            patch.setattr(files, "names", down)
            with pytest.raises(SpoolUnavailable, match="is it still mounted"):
                spool.claim(timeout=0.2)
        # Nothing was taken for deleted meanwhile.
        assert spool.claim(timeout=5) is not None


def test_a_root_that_vanishes_and_comes_back(tmp_path: Path) -> None:
    root, away = tmp_path / "spool", tmp_path / "unmounted"
    publish(root, call(0), call(1))
    with open_spool(root, options=PLAIN) as spool:
        first = spool.claim()
        assert first is not None
        root.rename(away)
        back = threading.Timer(0.5, lambda: away.rename(root))
        back.start()
        second = spool.claim(timeout=30)
        back.join()
        assert second is not None
        assert first.done()
        assert second.done()
    assert not list(root.rglob("*.safetensors"))


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESTALE, errno.EIO])
def test_a_claim_whose_reply_was_lost_is_judged_by_the_same_reader(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS carries out a rename, loses the reply and sends it again: ENOENT for a file that is ours."""
    root = tmp_path / "spool"
    publish(root, call(0), call(1), call(2))
    rename, lost = files.rename, []

    def loses_the_second_claim(source: Any, target: Any) -> None:
        rename(source, target)
        if "claimed" in Path(target).parts:
            lost.append(target)
            if len(lost) == 2:
                raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "rename", loses_the_second_claim)
    with open_spool(root, options=PLAIN) as spool:
        held = []
        while (claim := spool.claim(timeout=0.2)) is not None:
            held.append(claim)
        assert sorted(claim.seq for claim in held) == [0, 1, 2]
        assert [claim.attempt for claim in held] == [0, 0, 0]
        assert all(claim.done() for claim in held)


def test_a_claim_whose_reply_was_lost_is_given_back_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "spool"
    publish(root, call(0), call(1))
    rename = files.rename

    def loses_the_reply(source: Any, target: Any) -> None:
        rename(source, target)
        if Path(target).name.startswith("r0.t0.00000000"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(files, "rename", loses_the_reply)
    with open_spool(root, options=PLAIN) as spool:
        claim = spool.claim()
        assert claim is not None
        assert claim.seq == 1
    assert len(list((root / "rank0").rglob("*.safetensors"))) == 2


def test_a_listing_that_shows_what_has_gone_does_not_keep_a_claim_from_returning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "spool"
    publish(root, call(0))
    names, rename, tries = files.names, files.rename, []

    def remembers(folder: Any) -> list[str]:
        shown = names(folder)
        return shown or ["00000000.Torch.add.0.safetensors"] if Path(folder).name == "step0" else shown

    def counted(source: Any, target: Any) -> None:
        if Path(source).parent.name == "step0":
            tries.append(source)
            # Without a limit it would go on for ever.
            assert len(tries) < 100
        rename(source, target)

    monkeypatch.setattr(files, "names", remembers)
    monkeypatch.setattr(files, "rename", counted)
    with open_spool(root, options=PLAIN) as spool:
        claim = spool.claim()
        assert claim is not None
        assert claim.done()
        assert spool.claim() is None


def test_two_sessions_of_one_rank_at_the_same_time(tmp_path: Path) -> None:
    root = tmp_path / "spool"
    infos = [SessionInfo(name, 0, "host", 1, "0", 0.0) for name in ("one", "two")]
    with open_spool(root, create=True, options=PLAIN) as first, open_spool(root, options=PLAIN) as second:
        sessions = [spool.open_session(info) for spool, info in zip((first, second), infos, strict=True)]
        for seq in range(20):
            for spool, info in zip((first, second), infos, strict=True):
                assert spool.publish(call(seq, session=info.session))
        # While both write: what is taken and tidied away between does not disturb them.
        seen = []
        while (claim := first.claim()) is not None:
            header = claim.load().header
            seen.append((header.session, header.seq))
            assert claim.done()
        first.tidy()
        assert second.publish(call(20, session="two"))
        for session in sessions:
            session.close("closed", {})
        assert {(record.session, record.state) for record in first.sessions()} == {("one", "closed"), ("two", "closed")}
    assert sorted(seen) == [(name, seq) for name in ("one", "two") for seq in range(20)]
    assert len(list(root.rglob("*.safetensors"))) == 1


def test_folders_are_touched_where_listings_hide_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS 3: a file made in the same tick as the last listing stays unseen until the folder's time is set from here."""
    root = tmp_path / "spool"
    publish(root, call(0))
    monkeypatch.setattr(files, "is_nfs3", lambda path: True)
    monkeypatch.setattr(listing, "_TOUCH_EVERY_S", 0.05)
    names, touch, hidden = files.names, files.touch, {"step0"}

    def stale(folder: Any) -> list[str]:
        return [] if Path(folder).name in hidden else names(folder)

    def told(folder: Any) -> None:
        touch(folder)
        hidden.discard(Path(folder).name)

    monkeypatch.setattr(files, "names", stale)
    monkeypatch.setattr(files, "touch", told)
    with open_spool(root, options=PLAIN) as spool:
        start = time.monotonic()
        assert spool.claim() is None
        assert spool.claim(timeout=30) is not None
        assert time.monotonic() - start < 25


def test_a_file_system_without_inodes_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "spool"
    with open_spool(root, create=True, options=SpoolOptions(when_full="drop", reserve_bytes=2**20)) as spool:
        spool.open_session(SessionInfo("s1", 0, "host", 1, "0", 0.0))
        assert spool.publish(call(0))
        # It looks once a second, and after so many bytes.
        monkeypatch.setattr(room, "_LOOK_EVERY_S", -1.0)
        monkeypatch.setattr(files, "free", lambda path: (2**40, 3))
        assert not spool.publish(call(1))
        monkeypatch.setattr(files, "free", lambda path: (2**40, None))
        assert spool.publish(call(2))
    assert len(list(root.rglob("*.safetensors"))) == 2


def test_thousands_of_steps(tmp_path: Path) -> None:
    root = tmp_path / "spool"
    steps = 3000
    assert all(publish(root, *[call(0, step=step) for step in range(steps)]))
    with open_spool(root, options=PLAIN) as spool:
        seen = []
        while (claim := spool.claim()) is not None:
            seen.append(claim.step)
            assert claim.done()
        spool.tidy()
    assert seen == list(range(steps))
    assert [name for name in os.listdir(root / "rank0") if name.startswith("step")] == []

"""Every file call of publish, claim, done, fail, release and take-back fails once, or is where the process dies.

After each: a bundle that was published has its row or is in quarantine, nothing that was not published is seen, no bundle is
there twice, and a purge leaves no debris.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from spool_bundles import PLAIN, call, drain, files_below, info, taken
from spool_faults import Died, Faults, faults

from spool import Spool, SpoolError, files, janitor, open_spool, purge

# Dead by silence within moments: these processes cannot be seen to have ended, they are this one.
OPTIONS = replace(PLAIN, stale_after=0.05)

Rows = list[tuple[str, int, int, int]]
ERRORS = [errno.ENOSPC, errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOENT]
KINDS: dict[str, dict[str, object]] = {
    "dies before": {},
    "dies after": {"after": True},
    **{f"{errno.errorcode[code]} before": {"error": OSError(code, os.strerror(code))} for code in ERRORS},
    "EIO after": {"error": OSError(errno.EIO, "lost reply"), "after": True},
}


def opened(root: Path) -> Spool:
    return open_spool(root, options=OPTIONS)


def publish(spool: Spool, rows: Rows, published: Rows) -> None:
    session = spool.open_session(info())
    for bundle in (call(0), call(1), call(0, step=1)):
        if spool.publish(bundle):
            published.append(bundle.header.key)
    session.heartbeat({"seen": 3})
    session.close()


def consume(spool: Spool, rows: Rows, published: Rows) -> None:
    while (claim := spool.claim()) is not None:
        key = claim.load().header.key
        rows.append(key)
        claim.done()


def mistreat(spool: Spool, rows: Rows, published: Rows) -> None:
    """One fails, one is released, one costs its worker an attempt."""
    endings: list[Callable[[object], object]] = [
        lambda claim: claim.fail("bad"),  # type: ignore[attr-defined]
        lambda claim: claim.release(),  # type: ignore[attr-defined]
        lambda claim: claim.release(failed_attempt=True),  # type: ignore[attr-defined]
    ]
    claims = [spool.claim() for _ in endings]
    for claim, end in zip(claims, endings, strict=True):
        if claim is not None:
            end(claim)
    spool.stats()
    spool.tidy()


def abandon(root: Path) -> None:
    """A consumer that dies with claims in hand."""
    spool = opened(root)
    for _ in range(3):
        assert spool.claim() is not None
    spool._consumer._heartbeat.stop(remove=False)  # type: ignore[attr-defined]


def prepare_nothing(root: Path) -> Rows:
    return []


def prepare_three(root: Path) -> Rows:
    published: Rows = []
    with opened(root) as spool:
        publish(spool, [], published)
    return published


def prepare_abandoned(root: Path) -> Rows:
    published = prepare_three(root)
    abandon(root)
    return published


SCENARIOS = {
    "publish": (prepare_nothing, publish),
    "consume": (prepare_three, consume),
    "mistreat": (prepare_three, mistreat),
    "take back": (prepare_abandoned, consume),
}


def run(root: Path, scenario: str, monkeypatch: pytest.MonkeyPatch, **settings: object) -> tuple[Faults, Rows, Rows]:
    """One scenario with one fault, then what a healthy reader and a purge make of it."""
    prepare, act = SCENARIOS[scenario]
    root.mkdir()
    rows: Rows = []
    published = prepare(root)
    with monkeypatch.context() as patch:
        # Whoever has a record is seen to have ended; who has none is found by silence.
        patch.setattr(janitor, "is_gone", lambda record: bool(record))
        spool = opened(root)
        with faults(monkeypatch, **settings) as found:
            for step in (lambda: act(spool, rows, published), spool.close):
                with contextlib.suppress(SpoolError, Died):
                    step()
        if found.hit not in (None, "unlink") and not found.dead and not found.in_sequence:
            assert not [name for name in files_below(root) if name.endswith(".tmp")], f"debris of {found.hit}"
        heartbeat = spool._consumer._heartbeat  # type: ignore[attr-defined]
        if heartbeat is not None:
            heartbeat.stop(remove=False)
        purge(root, stale_after=0.05, grace=0.0, options=OPTIONS)
        with opened(root) as reader:
            consume(reader, rows, published)
            reader.tidy()
    return found, rows, published


def check(root: Path, rows: Rows, published: Rows) -> None:
    left = files_below(root)
    quarantined = [name for name in left if name.startswith("quarantine/") and name.endswith(".safetensors")]
    keys = {*rows, *(("s1", 0, int(name.split("/step")[1][0]), int(name.split("/")[-1][:8])) for name in quarantined)}
    assert keys >= set(published), "lost"
    assert [name for name in left if "/step" in name and name not in quarantined and not name.endswith(".json")] == []
    assert [name for name in left if name.split("/")[-1].startswith(".")] == [], "debris"
    assert [name for name in left if name.startswith(("claimed/", "consumers/"))] == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_point(scenario: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy, rows, published = run(tmp_path / "healthy", scenario, monkeypatch)
    check(tmp_path / "healthy", rows, published)
    assert len(set(rows)) == len(rows) or scenario == "take back"
    assert len(healthy.seen) > 8
    # How many calls there are depends on time (visits of the janitor), so each run says whether its fault was reached.
    for at in itertools.count():
        root = tmp_path / str(at)
        found, rows, published = run(root, scenario, monkeypatch, at=at, **KINDS[kind])
        if found.hit is None:
            assert at > 8
            break
        if found.in_sequence:
            continue
        try:
            check(root, rows, published)
            if "after" not in kind and "dies" not in kind:
                assert set(rows) <= set(published), "seen, but not published"
        except AssertionError as error:
            raise AssertionError(f"{kind} at call {at}, {found.hit}: {error}") from error


def test_a_rename_that_happened_though_it_failed_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as spool:
        spool.publish(call(0))
        with faults(monkeypatch) as healthy:
            spool.publish(call(1))
        at = healthy.seen.index("rename")
        with faults(monkeypatch, at=at, error=OSError(errno.EIO, "lost reply"), after=True) as found:
            assert spool.publish(call(2)) is True
        assert found.seen.count("write_new") == 1
        assert spool.stats().ready == 3


def test_a_claim_whose_rename_happened_though_it_failed_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as spool:
        for seq in range(3):
            spool.publish(call(seq))
        assert taken(spool).done()
        with faults(monkeypatch, at=0, error=OSError(errno.EIO, "lost reply"), after=True) as found:
            claim = taken(spool)
        assert found.seen[0] == "rename"
        assert (claim.seq, claim.done()) == (1, True)


def test_a_step_folder_that_a_reader_removes_at_the_worst_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between mkdir and open, and with the file in it swept between write and rename."""
    with opened(tmp_path) as spool:
        write = files.write_new
        moments = {1: "before", 3: "after"}
        calls = 0

        def rude(path: str, *args: Any, **kwargs: Any) -> tuple[int, int]:
            nonlocal calls
            calls += 1
            moment = moments.get(calls)
            if moment == "before":
                shutil.rmtree(Path(path).parent)
            written = write(path, *args, **kwargs)
            if moment == "after":
                shutil.rmtree(Path(path).parent)
            return written

        monkeypatch.setattr(files, "write_new", rude)
        assert spool.publish(call(0)) is True
        assert spool.publish(call(0, step=1)) is True
        assert calls == 4
        assert drain(spool) == [("s1", 0, 0, 0), ("s1", 0, 1, 0)]


def test_an_empty_step_that_was_tidied_away_comes_back(tmp_path: Path) -> None:
    with opened(tmp_path) as writer, opened(tmp_path) as reader:
        writer.publish(call(0))
        drain(reader)
        reader.tidy()
        assert not (tmp_path / "rank0/step0").exists()
        writer.publish(call(1))
        assert len(drain(reader)) == 1

"""A share that fails for a while, a bundle that cannot be read, a full results disk: nothing is lost, nothing twice."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import left_in, rows_of

from spool import ResultsError, SpoolUnavailable, open_spool
from spool.memory import MemorySpool
from spool_reader.events import Notice
from spool_reader.watch import reprocess, watch

x = torch.ones(2)


class Flaky:
    """Makes one method of the claims of a spool fail a number of times."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: type[Any], name: str, times: int, error: Exception
    ) -> None:
        self.left = times
        good = getattr(owner, name)

        def method(*args: Any, **more: Any) -> Any:
            if self.left > 0:
                self.left -= 1
                raise error
            return good(*args, **more)

        monkeypatch.setattr(owner, name, method)


def away(number: int = errno.EIO) -> SpoolUnavailable:
    error = SpoolUnavailable("the share is away")
    error.__cause__ = OSError(number, os.strerror(number))
    return error


OUTAGES = {
    "deleting": ("claims.DirectoryClaim", "done", 2),
    "claiming": ("directory.DirectorySpool", "claim", 2),
    "reading": ("claims.FileSource", "load", 3),
}


@pytest.mark.parametrize("name", sorted(OUTAGES))
def test_a_share_that_is_away_for_a_while(
    name: str, tmp_path: Path, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    place, method, times = OUTAGES[name]
    module, _, owner = place.partition(".")
    writer = training()
    for _ in range(20):
        writer.call()
    writer.close()
    monkeypatch.setattr("spool_reader.run._RETRY_SECONDS", 0.05)
    flaky = Flaky(monkeypatch, getattr(importlib.import_module(f"spool.{module}"), owner), method, times, away())
    notices: list[str] = []
    summary = watch(
        tmp_path / "spool",
        out=tmp_path / "out",
        workers=0,
        on_event=lambda event: notices.append(event.text) if isinstance(event, Notice) else None,
    )
    assert flaky.left == 0
    assert sorted(row["seq"] for row in rows_of(tmp_path / "out")) == list(range(20))
    assert left_in(tmp_path / "spool") == []
    assert summary.exit_code == 0
    assert sum("the share is away" in text for text in notices) == times


def test_a_bundle_that_nobody_may_read_does_not_come_back_for_ever(
    tmp_path: Path, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spool.claims import FileSource

    writer = training()
    writer.call()
    writer.close()
    Flaky(monkeypatch, FileSource, "load", 1000, away(errno.EACCES))
    summary = watch(tmp_path / "spool", out=tmp_path / "out", workers=0)
    assert summary.rows == 0
    assert summary.quarantine_growth == 1
    assert summary.exit_code == 1
    [kept] = left_in(tmp_path / "spool")
    assert kept.startswith("quarantine/")


def test_a_full_results_disk_ends_the_run_and_loses_nothing(
    tmp_path: Path, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = training()
    for _ in range(5):
        writer.call()
    writer.close()

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("spool_reader.results.os.fsync", full)
        with pytest.raises(ResultsError, match="No space left"):
            watch(tmp_path / "spool", out=tmp_path / "out", workers=0)
    assert len(left_in(tmp_path / "spool")) == 5
    summary = watch(tmp_path / "spool", out=tmp_path / "out", workers=0)
    assert summary.rows == 5
    assert len(rows_of(tmp_path / "out")) == 5
    assert left_in(tmp_path / "spool") == []


def test_a_bundle_that_another_reader_took_back_is_fenced(tmp_path: Path, bundle: Any) -> None:
    with open_spool("memory:") as spool:
        assert isinstance(spool, MemorySpool)
        for seq in range(3):
            spool.publish(bundle("Torch.add.0", (x, x), {}, x + x, seq=seq))
        claim = spool.claim
        taken: list[Any] = []

        def claim_and_lose(*args: Any, **more: Any) -> Any:
            found = claim(*args, **more)
            if found is not None and not taken:
                taken.append(found)
                spool._claimed.clear()
            return found

        spool.claim = claim_and_lose  # type: ignore[method-assign]
        summary = reprocess(spool, out=tmp_path / "out", workers=0)
    assert summary.fenced == 1
    assert summary.rows == 3

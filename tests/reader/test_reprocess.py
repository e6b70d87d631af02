"""Judging once what is left, on every kind of spool; options and places that are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from spool import ConfigError, SpoolUnavailable, open_spool
from spool_reader.events import Notice
from spool_reader.watch import reprocess, watch


def test_reprocess_judges_what_is_there_and_does_not_wait(tmp_path: Path, training: Any) -> None:
    writer = training()
    for _ in range(5):
        writer.call()
    summary = reprocess(tmp_path / "spool", out=tmp_path / "out", workers=0, device="cpu")
    assert summary.rows == 5
    assert [session.state for session in summary.sessions] == ["open"]
    assert reprocess(tmp_path / "spool", out=tmp_path / "again", workers=0).exit_code == 5
    writer.close()


def test_a_bundle_in_the_wrong_place_is_quarantined(tmp_path: Path, training: Any) -> None:
    writer = training()
    writer.call()
    [path] = (tmp_path / "spool" / "rank0" / "step0").iterdir()
    (tmp_path / "spool" / "rank0" / "step5").mkdir()
    path.rename(tmp_path / "spool" / "rank0" / "step5" / path.name)
    summary = reprocess(tmp_path / "spool", out=tmp_path / "out", workers=0)
    assert summary.rows == 0
    assert "misplaced or forged" in summary.quarantined[0]["reason"]
    assert summary.exit_code == 1
    writer.close()


def test_a_memory_spool_is_judged_the_same_way(tmp_path: Path, bundle: Any) -> None:
    x = torch.ones(2)
    with open_spool("memory:") as spool:
        for seq in range(10):
            spool.publish(bundle("Torch.add.0", (x, x), {}, x + x, seq=seq))
        assert reprocess(spool, out=tmp_path / "a", workers=0).rows == 10
        for seq in range(10):
            spool.publish(bundle("Torch.add.0", (x, x), {}, x + x, seq=seq))
        assert reprocess(spool, out=tmp_path / "b", workers=1).rows == 10


@pytest.mark.parametrize("url", ["directory", "memory:"])
def test_what_is_in_quarantine_can_be_tried_again(url: str, tmp_path: Path, bundle: Any) -> None:
    (tmp_path / "spool").mkdir()
    x = torch.ones(2)
    with open_spool(tmp_path / "spool" if url == "directory" else url) as spool:
        for seq in range(3):
            spool.publish(bundle("Torch.add.0", (x, x), {}, x + x, seq=seq))
        for _ in range(3):
            for claim in [spool.claim() for _ in range(spool.stats().ready)]:
                claim.release(failed_attempt=claim.seq != 1)
        assert spool.stats().quarantined == 2
        assert reprocess(spool, out=tmp_path / "a", workers=0).rows == 1
        assert reprocess(spool, out=tmp_path / "b", workers=0, retry_failed=True).rows == 2
        assert spool.stats().quarantined == 0
        assert not list((tmp_path / "spool").rglob("*try*"))
        assert not list((tmp_path / "spool").rglob("quarantine/**/*.json"))


WRONG = {
    "workers": ({"workers": -1}, ConfigError, "workers = -1"),
    "call_timeout": ({"call_timeout": 0}, ConfigError, "call_timeout = 0"),
    "stale_after": ({"stale_after": -1.0}, ConfigError, "stale_after = -1.0"),
    "columns": ({"columns": "de"}, ConfigError, "columns = 'de'"),
    "device": ({"device": "tpu"}, ConfigError, "device = 'tpu'"),
    "unknown option": ({"devcie": "cpu"}, TypeError, "devcie"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_option_is_named(name: str, tmp_path: Path) -> None:
    options, kind, text = WRONG[name]
    (tmp_path / "spool").mkdir()
    with pytest.raises(kind, match=text):
        watch(tmp_path / "spool", out=tmp_path / "out", **options)


def test_a_missing_spool_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpoolUnavailable, match="missing-spool"):
        watch(tmp_path / "missing-spool", out=tmp_path / "out", workers=0)


def test_a_fault_of_the_judge_costs_one_row_and_is_told(
    tmp_path: Path, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import comparators

    judge = comparators.judge

    def faulty(api: str, *args: Any, **more: Any) -> Any:
        if api == "Torch.mul.0":
            raise KeyError("a bug")
        return judge(api, *args, **more)

    monkeypatch.setattr(comparators, "judge", faulty)
    writer = training()
    for api in ("Torch.add.0", "Torch.mul.0", "Torch.add.1"):
        writer.call(api)
    writer.close()
    notices: list[str] = []
    summary = reprocess(
        tmp_path / "spool",
        out=tmp_path / "out",
        workers=0,
        on_event=lambda event: notices.append(event.text) if isinstance(event, Notice) else None,
    )
    assert summary.verdicts == {"pass": 2, "skip": 1}
    assert summary.internal == 1
    assert summary.exit_code == 1
    assert any("internal error of spool-check: KeyError: 'a bug'" in text for text in notices)


def test_a_call_that_has_its_row_already_gets_no_second_one(tmp_path: Path, bundle: Any) -> None:
    x = torch.ones(2)
    for _ in range(2):
        with open_spool("memory:") as spool:
            for seq in range(4):
                spool.publish(bundle("Torch.add.0", (x, x), {}, x + x, seq=seq))
            summary = reprocess(spool, out=tmp_path / "out", workers=0)
            assert spool.stats().ready == spool.stats().claimed == 0
    assert summary.repeated == 4
    assert summary.rows == 4
    assert len((tmp_path / "out" / "results-rank0.jsonl").read_text().splitlines()) == 4

"""Following a spool: what is judged, what is waited for, and when it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import left_in, rows_of

from spool import ResultsError
from spool_reader.events import Event, Notice, Progress, RowWritten, Started
from spool_reader.summary import Summary
from spool_reader.watch import watch


class Watching:
    """`watch` in a thread, with its events."""

    def __init__(self, tmp_path: Path, **options: Any) -> None:
        self.events: list[Event] = []
        self.stop, self.abort = threading.Event(), threading.Event()
        self.summary: Summary | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(tmp_path, options), daemon=True)
        self._thread.start()

    def _run(self, tmp_path: Path, options: dict[str, Any]) -> None:
        try:
            options = {"out": tmp_path / "out", "workers": 0, "device": "cpu", **options}
            self.summary = watch(
                tmp_path / "spool", on_event=self.events.append, stop=self.stop, abort=self.abort, **options
            )
        except Exception as error:
            self.error = error

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert self.error is None, self.error
            assert time.monotonic() < end, [event for event in self.events if not isinstance(event, Progress)]
            time.sleep(0.02)

    def end(self, seconds: float = 60.0) -> Summary:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), self.events[-3:]
        if self.error is not None:
            raise self.error
        assert self.summary is not None
        return self.summary


@pytest.fixture
def watching(tmp_path: Path) -> Any:
    (tmp_path / "spool").mkdir()
    started: list[Watching] = []

    def start(**options: Any) -> Watching:
        started.append(Watching(tmp_path, **options))
        return started[-1]

    yield start
    for one in started:
        one.abort.set()
        one.stop.set()


def test_a_finished_training_is_judged_and_its_spool_emptied(tmp_path: Path, training: Any, watching: Any) -> None:
    writer = training()
    for step in range(3):
        for _ in range(20):
            writer.call(step=step, wrong=step == 1)
    writer.close()
    summary = watching().end()
    assert summary.verdicts == {"pass": 40, "error": 20}
    assert summary.exit_code == 1
    assert (summary.first_divergence["s1", 0].step, summary.first_divergence["s1", 0].seq) == (1, 0)
    assert [session.state for session in summary.sessions] == ["closed"]
    assert left_in(tmp_path / "spool") == []
    rows = rows_of(tmp_path / "out")
    assert [(row["step"], row["seq"]) for row in rows] == [(step, seq) for step in range(3) for seq in range(20)]
    assert not [path for path in (tmp_path / "spool" / "rank0").iterdir() if path.is_dir()], "empty step folders"


def test_a_reader_that_starts_first_waits_for_the_writer_and_follows_it(
    tmp_path: Path, training: Any, watching: Any
) -> None:
    reader = watching()
    reader.until(lambda: any(event.waiting == "waiting for a training process" for event in reader.of(Progress)))
    writer = training()
    writer.call()
    reader.until(lambda: len(reader.of(RowWritten)) == 1)
    writer.call(wrong=True)
    reader.until(lambda: len(reader.of(RowWritten)) == 2)
    assert reader.of(RowWritten)[1].row["verdict"] == "error"
    writer.close()
    assert reader.end().rows == 2


def test_it_ends_when_every_rank_is_over(training: Any, watching: Any) -> None:
    first, second = training(rank=0), training(rank=1)
    reader = watching()
    first.call()
    first.close()
    reader.until(lambda: len(reader.of(RowWritten)) == 1)
    second.call()
    reader.until(lambda: len(reader.of(RowWritten)) == 2)
    assert reader.summary is None
    second.close("failed")
    summary = reader.end()
    assert [(session.rank, session.state) for session in summary.incomplete] == [(1, "failed")]


def test_a_silent_writer_is_over_after_a_while_and_incomplete(training: Any, watching: Any) -> None:
    writer = training()
    writer.call()
    reader = watching(stale_after=1.0)
    summary = reader.end()
    assert summary.rows == 1
    assert [session.state for session in summary.incomplete] == ["dead"]
    writer.close()


def test_sessions_of_an_earlier_training_are_not_waited_for_and_do_not_end_it(training: Any, watching: Any) -> None:
    training(session="old").close()
    reader = watching(await_session=True)
    reader.until(lambda: any("waiting for a new one" in event.text for event in reader.of(Notice)))
    writer = training(session="new")
    writer.call()
    writer.close()
    summary = reader.end()
    assert [session.session for session in summary.sessions] == ["new"]
    assert summary.rows == 1


def test_follow_goes_on_until_it_is_stopped(training: Any, watching: Any) -> None:
    reader = watching(follow=True)
    for number in range(2):
        writer = training(session=f"s{number}")
        writer.call()
        writer.close()
        reader.until(lambda number=number: len(reader.of(RowWritten)) == number + 1)
    time.sleep(0.7)
    assert reader.summary is None
    reader.stop.set()
    assert reader.end().stopped


def test_only_the_ranks_asked_for(tmp_path: Path, training: Any, watching: Any) -> None:
    for rank in range(3):
        writer = training(rank=rank)
        writer.call()
        if rank != 2:
            writer.close()
    summary = watching(ranks=[0, 1]).end()
    assert sorted(row["rank"] for row in rows_of(tmp_path / "out")) == [0, 1]
    assert summary.rows == 2
    assert len(left_in(tmp_path / "spool")) == 1


def test_bundles_without_a_session_end_after_a_while(tmp_path: Path, training: Any, watching: Any) -> None:
    writer = training()
    writer.call()
    next((tmp_path / "spool" / "rank0").glob("session-*.json")).unlink()
    assert watching(stale_after=1.0).end().rows == 1


def test_a_stop_finishes_what_is_in_hand_and_leaves_the_rest(
    tmp_path: Path, training: Any, watching: Any, poison: str
) -> None:
    writer = training()
    for _ in range(100):
        writer.call("NPU.npu_slow.0", args=(torch.ones(2),))
    reader = watching(workers=1, imports=[poison])
    reader.until(lambda: len(reader.of(RowWritten)) >= 1)
    reader.stop.set()
    summary = reader.end(20)
    left = left_in(tmp_path / "spool")
    assert summary.stopped
    assert len(rows_of(tmp_path / "out")) + len(left) == 100
    assert left
    assert all("rank0/step0" in name for name in left), "claims are given back"
    writer.close()


def test_an_abort_gives_back_what_is_in_hand(tmp_path: Path, training: Any, watching: Any, poison: str) -> None:
    writer = training()
    for _ in range(5):
        writer.call("NPU.npu_hangs.0", args=(torch.ones(2),))
    reader = watching(workers=1, imports=[poison])
    reader.until(lambda: any(event.in_hand for event in reader.of(Progress)))
    reader.abort.set()
    reader.stop.set()
    reader.end(10)
    assert sorted(left_in(tmp_path / "spool")) == sorted(
        f"rank0/step0/{seq:08d}.NPU.npu_hangs.0.safetensors" for seq in range(5)
    )
    writer.close()


def test_a_second_reader_on_the_same_results_is_refused(tmp_path: Path, watching: Any) -> None:
    reader = watching()
    reader.until(lambda: bool(reader.of(Started)))
    with pytest.raises(ResultsError, match="--out"):
        watch(tmp_path / "spool", out=tmp_path / "out", workers=0)
    reader.stop.set()
    reader.end()


def test_two_readers_share_a_spool(tmp_path: Path, training: Any, watching: Any) -> None:
    writer = training()
    for step in range(4):
        for _ in range(50):
            writer.call(step=step)
    readers = [watching(out=tmp_path / name) for name in ("a", "b")]
    writer.close()
    for reader in readers:
        reader.until(lambda reader=reader: reader.summary is not None or bool(reader.of(Progress)))
    first = next((reader for reader in readers if reader.summary is not None), readers[0])
    first.end()
    for reader in readers:
        reader.stop.set()
        reader.end()
    rows = rows_of(tmp_path / "a", tmp_path / "b")
    assert len({(row["step"], row["seq"]) for row in rows}) == len(rows) == 200


def test_failing_bundles_are_kept_with_the_command_that_shows_them_again(
    tmp_path: Path, training: Any, watching: Any
) -> None:
    writer = training()
    writer.call()
    writer.call(wrong=True)
    writer.close()
    watching(save_errors=tmp_path / "kept").end()
    good, bad = rows_of(tmp_path / "out")
    assert "bundle" not in good
    assert bad["reproduce"] == f"spool-check replay {bad['bundle']}"
    from spool_reader.inspection import replay_files

    [again] = replay_files([Path(bad["bundle"])], device="cpu")
    assert again["verdict"] == "error"
    assert again["outputs"] == bad["outputs"]
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [Path(bad["bundle"]).name]


def test_white_and_black_lists_leave_skip_rows(tmp_path: Path, training: Any, watching: Any) -> None:
    writer = training()
    for api in ("Torch.add.0", "Torch.mul.0", "Tensor.add.0"):
        writer.call(api)
    writer.close()
    watching(white_list=["add"], black_list=["Tensor.add"]).end()
    found = {row["api"]: (row["verdict"], row["message"]) for row in rows_of(tmp_path / "out")}
    assert found["Torch.add.0"][0] == "pass"
    assert found["Torch.mul.0"] == ("skip", "not in the white list")
    assert found["Tensor.add.0"] == ("skip", "in the black list")


def test_what_a_closed_training_dropped_is_in_the_summary(training: Any, watching: Any) -> None:
    writer = training()
    writer.call()
    writer.close(dropped=7)
    assert watching().end().dropped == 7


def test_a_host_without_file_events_polls(
    tmp_path: Path, training: Any, watching: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **more: Any) -> None:
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr("watchdog.observers.api.BaseObserver.schedule", refuse)
    reader = watching()
    reader.until(lambda: any("found by polling" in event.text for event in reader.of(Notice)))
    writer = training()
    writer.call()
    reader.until(lambda: len(reader.of(RowWritten)) == 1)
    writer.close()
    assert reader.end().rows == 1


def test_a_listener_hears_of_every_row_once_and_the_reports_are_there(
    tmp_path: Path, training: Any, watching: Any
) -> None:
    writer = training()
    for _ in range(30):
        writer.call()
    writer.close()
    reader = watching()
    summary = reader.end()
    assert [event.row["seq"] for event in reader.of(RowWritten)] == list(range(30))
    *tables, page = summary.reports
    assert page == str(tmp_path / "out" / "report.html")
    assert {Path(path).name.rsplit("_", 2)[0] for path in tables} == {
        "accuracy_checking_result",
        "accuracy_checking_details",
        "api_precision_compare_result",
        "api_precision_compare_details",
    }
    assert all(Path(path).exists() for path in summary.reports)

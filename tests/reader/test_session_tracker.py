"""When a training counts as over, by this side's own clock."""

from __future__ import annotations

from dataclasses import replace

from spool import SessionRecord
from spool_reader.session_tracker import SessionTracker


class Clock:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def record(session: str = "s1", rank: int = 0, **more: object) -> SessionRecord:
    return replace(SessionRecord(session, rank, "host", 1, "0", 0.0), **more)


def test_a_beat_keeps_a_writer_alive_and_its_silence_does_not() -> None:
    clock = Clock()
    tracker = SessionTracker(30.0, None, clock)
    tracker.update([record(beat=1)])
    clock.now += 29
    tracker.update([record(beat=2)])
    clock.now += 29
    tracker.update([record(beat=2)])
    assert not tracker.all_over
    clock.now += 2
    assert [state.state for state in tracker.states] == ["dead"]
    assert tracker.all_over
    tracker.update([record(beat=3)])
    assert not tracker.all_over, "it was only paused"


def test_the_writers_own_clock_decides_nothing() -> None:
    clock = Clock()
    tracker = SessionTracker(30.0, None, clock)
    tracker.update([record(beat=1, heartbeat=0.0)])
    assert not tracker.all_over
    tracker.update([record(beat=1, heartbeat=4e9)])
    clock.now += 31
    assert tracker.all_over


def test_all_means_every_rank() -> None:
    tracker = SessionTracker(30.0, None, Clock())
    assert not tracker.known
    assert not tracker.all_over
    tracker.update([record(rank=0, state="closed"), record(rank=1)])
    assert not tracker.all_over
    tracker.update([record(rank=0, state="closed"), record(rank=1, state="failed")])
    assert tracker.all_over
    assert [(state.rank, state.complete) for state in tracker.states] == [(0, True), (1, False)]


def test_other_ranks_do_not_count() -> None:
    tracker = SessionTracker(30.0, [1], Clock())
    tracker.update([record(rank=0), record(rank=1, state="closed")])
    assert tracker.all_over
    assert [state.rank for state in tracker.states] == [1]


def test_history_is_set_aside_and_what_is_open_is_not() -> None:
    tracker = SessionTracker(30.0, None, Clock())
    tracker.update([record("old", state="closed"), record("running")])
    assert tracker.set_aside_history() == 1
    assert [state.session for state in tracker.states] == ["running"]
    tracker.update([record("old", state="closed"), record("running", state="closed")])
    assert tracker.all_over

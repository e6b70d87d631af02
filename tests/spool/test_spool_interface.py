"""One suite for every peer of the Spool interface: what a writer and a reader may rely on, whichever spool they have."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from spool_bundles import PLAIN, call, drain, info, taken

from spool import (
    BundleError,
    ConfigError,
    Spool,
    SpoolCheckError,
    SpoolOptions,
    SpoolUnavailable,
    open_spool,
)

PEERS = ["directory", "memory"]


class Maker:
    """Opens a fresh spool of one kind with the options that a test wants."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind, self._folder, self.opened = kind, folder, []

    def __call__(self, options: SpoolOptions = PLAIN) -> Spool:
        url = "memory:" if self._kind == "memory" else str(self._folder / f"spool{len(self.opened)}")
        spool = open_spool(url, create=True, options=options)
        self.opened.append(spool)
        return spool


@pytest.fixture(params=PEERS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Maker]:
    maker = Maker(request.param, tmp_path)
    yield maker
    for spool in maker.opened:
        spool.close()


def test_what_is_published_is_claimed_loaded_and_gone(make: Maker) -> None:
    spool = make()
    assert spool.claim() is None
    assert spool.publish(call(3, torch.ones(2), rank=1, step=2)) is True
    claim = taken(spool)
    assert (claim.rank, claim.step, claim.seq, claim.api, claim.attempt) == (1, 2, 3, "Torch.add.3", 0)
    assert claim.name == "00000003.Torch.add.3.safetensors"
    assert claim.load().args[0].tolist() == [1.0, 1.0]
    assert spool.stats().claimed == 1
    assert claim.done() is True
    assert (spool.stats().ready, spool.stats().claimed) == (0, 0)
    assert spool.claim() is None


def test_execution_order_within_a_rank(make: Maker) -> None:
    spool = make()
    places = [(1, 0), (0, 10), (0, 2), (10, 0), (2, 0), (0, 1)]
    for step, seq in places:
        spool.publish(call(seq, step=step))
    assert [(step, seq) for _, _, step, seq in drain(spool)] == sorted(places)


def test_fair_over_ranks(make: Maker) -> None:
    spool = make()
    for rank in (0, 1, 2):
        for seq in range(4):
            spool.publish(call(seq, rank=rank))
    assert [rank for _, rank, _, _ in drain(spool)] == [0, 1, 2] * 4


def test_only_the_ranks_asked_for(make: Maker) -> None:
    spool = make()
    for rank in range(3):
        spool.publish(call(0, rank=rank))
    assert [rank for _, rank, _, _ in drain(spool, ranks={1})] == [1]
    assert spool.stats().ready_by_rank == {0: 1, 2: 1}
    assert sorted(rank for _, rank, _, _ in drain(spool)) == [0, 2]


def test_a_released_bundle_takes_its_turn_again(make: Maker) -> None:
    spool = make()
    for seq in range(4):
        spool.publish(call(seq))
    first, second = taken(spool), taken(spool)
    second.release()
    first.release()
    assert [seq for *_, seq in drain(spool)] == [0, 1, 2, 3]


def test_a_released_bundle_of_an_earlier_step_comes_first(make: Maker) -> None:
    spool = make()
    for step in (0, 5):
        spool.publish(call(0, step=step))
    early, late = taken(spool), taken(spool)
    late.release()
    early.release()
    assert [step for _, _, step, _ in drain(spool)] == [0, 5]


def test_attempts_are_counted_and_end_in_quarantine(make: Maker) -> None:
    spool = make()
    spool.publish(call(0))
    spool.publish(call(1))
    for attempt in range(3):
        claim = taken(spool)
        assert (claim.seq, claim.attempt) == (0, attempt)
        claim.release(failed_attempt=True)
    assert spool.stats().quarantined == 1
    assert [seq for *_, seq in drain(spool)] == [1]


def test_releases_without_failure_cost_no_attempt(make: Maker) -> None:
    spool = make()
    spool.publish(call(0))
    for _ in range(5):
        claim = taken(spool)
        assert claim.attempt == 0
        claim.release()
    assert (spool.stats().ready, spool.stats().quarantined) == (1, 0)


def test_quarantine_and_another_try(make: Maker) -> None:
    spool = make()
    spool.publish(call(0))
    taken(spool).fail("zeroed data")
    assert (spool.claim(), spool.stats().quarantined, spool.stats().ready) == (None, 1, 0)
    assert spool.retry_quarantined() == 1
    assert spool.retry_quarantined() == 0
    claim = taken(spool)
    assert (claim.attempt, spool.stats().quarantined) == (0, 0)


def test_a_claim_ends_once(make: Maker) -> None:
    spool = make()
    spool.publish(call(0))
    claim = taken(spool)
    assert claim.done() is True
    assert claim.done() is False
    claim.release()
    claim.fail("late")
    assert spool.stats().ready == spool.stats().quarantined == 0
    assert spool.stats().fenced >= 1


def test_a_claim_that_was_given_back_is_not_ended_by_its_old_handle(make: Maker) -> None:
    spool = make()
    spool.publish(call(0))
    old = taken(spool)
    old.release(failed_attempt=True)
    new = taken(spool)
    assert old.done() is False
    assert new.done() is True


def test_sources_travel_to_other_processes(make: Maker) -> None:
    spool = make()
    spool.publish(call(0, torch.ones(2)))
    claim = taken(spool)
    source = pickle.loads(pickle.dumps(claim.source))
    assert source.load().args[0].tolist() == [1.0, 1.0]


def test_a_waiting_claim_is_woken_by_a_publish(make: Maker) -> None:
    spool = make()
    timer = threading.Timer(0.1, lambda: spool.publish(call(0)))
    timer.start()
    started = time.monotonic()
    claim = spool.claim(10.0)
    assert claim is not None
    assert time.monotonic() - started < 5
    timer.join()


def test_a_claim_waits_as_long_as_asked_and_not_longer(make: Maker) -> None:
    spool = make()
    started = time.monotonic()
    assert spool.claim(0.2) is None
    assert 0.15 < time.monotonic() - started < 2


def test_sessions_say_what_their_writers_last_said(make: Maker) -> None:
    spool = make()
    one, two = spool.open_session(info("a")), spool.open_session(info("b", rank=1))
    one.heartbeat({"seen": 3})
    two.close("failed", {"seen": 1, "dropped": 1})
    records = {record.session: record for record in spool.sessions()}
    assert (records["a"].state, records["a"].counts, records["a"].rank) == ("open", {"seen": 3}, 0)
    assert (records["b"].state, records["b"].counts, records["b"].rank) == ("failed", {"seen": 1, "dropped": 1}, 1)
    beat = records["a"].beat
    one.heartbeat({"seen": 3})
    one.close()
    record = next(record for record in spool.sessions() if record.session == "a")
    assert record.beat > beat + 1
    assert (record.state, record.counts) == ("closed", {"seen": 3})


FULL = {
    "block, timed out": (SpoolOptions(max_pending_bundles=2, block_timeout=0.1, reserve_bytes=0), [0, 1]),
    "drop": (SpoolOptions(max_pending_bundles=2, when_full="drop", reserve_bytes=0), [0, 1]),
    "sample, timed out": (
        SpoolOptions(max_pending_bundles=2, when_full="sample", block_timeout=0.1, reserve_bytes=0),
        [0, 1],
    ),
    "bytes": (SpoolOptions(max_pending_bytes=1500, when_full="drop", reserve_bytes=0), [0, 1]),
}


@pytest.mark.parametrize(("options", "kept"), FULL.values(), ids=FULL.keys())
def test_a_full_spool_drops_by_policy(make: Maker, options: SpoolOptions, kept: list[int]) -> None:
    spool = make(options)
    published = [spool.publish(call(seq)) for seq in range(4)]
    assert published == [seq in kept for seq in range(4)]
    assert [seq for *_, seq in drain(spool)] == kept
    assert spool.publish(call(9)) is True


def test_a_full_spool_blocks_until_there_is_room(make: Maker) -> None:
    spool = make(SpoolOptions(max_pending_bundles=1, block_timeout=30, reserve_bytes=0))
    spool.publish(call(0))
    timer = threading.Timer(0.2, lambda: taken(spool).done())
    timer.start()
    started = time.monotonic()
    assert spool.publish(call(1)) is True
    assert 0.1 < time.monotonic() - started < 10
    timer.join()


def test_a_rank_that_is_full_does_not_hold_up_another(make: Maker) -> None:
    spool = make(SpoolOptions(max_pending_bundles=1, when_full="drop", reserve_bytes=0))
    assert [spool.publish(call(seq, rank=rank)) for rank in (0, 1) for seq in (0, 1)] == [True, False, True, False]


def test_a_bundle_larger_than_the_byte_limit_goes_through_alone(make: Maker) -> None:
    spool = make(SpoolOptions(max_pending_bytes=100, when_full="drop", reserve_bytes=0))
    assert spool.publish(call(0)) is True
    assert spool.publish(call(1)) is False


def test_many_threads_share_one_spool(make: Maker) -> None:
    spool, found, lock = make(), [], threading.Lock()

    def write(rank: int) -> None:
        for seq in range(50):
            spool.publish(call(seq, rank=rank))

    def read() -> None:
        while (claim := spool.claim(0.5)) is not None:
            with lock:
                found.append(claim.load().header.key)
            assert claim.done()

    threads = [threading.Thread(target=write, args=(rank,)) for rank in (0, 1)]
    threads += [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [("s1", rank, 0, seq) for rank in (0, 1) for seq in range(50)]


def test_close_gives_claims_back(make: Maker) -> None:
    spool = make()
    spool.publish(call(0))
    with spool:
        taken(spool)
    # Memory goes with its process; a directory keeps what was claimed.
    if spool.durable:
        with open_spool(spool.url) as again:
            assert taken(again).attempt == 0
    spool.close()


def test_tidy_never_removes_bundles(make: Maker) -> None:
    spool = make()
    for step in range(3):
        spool.publish(call(0, step=step))
    taken(spool).done()
    spool.tidy()
    assert len(drain(spool)) == 2
    spool.publish(call(0, step=0))
    assert len(drain(spool)) == 1


def test_oldest_age_grows(make: Maker) -> None:
    spool = make()
    assert spool.stats().oldest_age_s is None
    spool.publish(call(0))
    time.sleep(0.05)
    age = spool.stats().oldest_age_s
    assert age is not None
    assert 0.01 < age < 60


def test_attributes_say_what_differs(tmp_path: Path) -> None:
    with open_spool(tmp_path) as directory, open_spool("memory:") as memory:
        assert (directory.durable, directory.shareable, directory.url) == (True, True, str(tmp_path))
        assert (memory.durable, memory.shareable, memory.url) == (False, False, "memory:")


NO_SPOOL = {
    "missing": ("{folder}/no", False, SpoolUnavailable, "no such directory; create it"),
    "parent missing": ("{folder}/no/deeper", True, SpoolUnavailable, "is the shared storage mounted"),
    "a file": ("{folder}/file", False, SpoolUnavailable, "not a directory"),
    "below a file": ("{folder}/file/x", True, SpoolUnavailable, "is the shared storage mounted"),
    "empty": ("", False, ConfigError, "empty name"),
    "other scheme": ("http://x", False, ConfigError, "no spool can be opened there"),
    "name too long": ("{folder}/" + "x" * 300, True, SpoolUnavailable, "name too long"),
    "nul": ("{folder}/a\0b", False, SpoolUnavailable, "no such directory"),
    "nul, to be made": ("{folder}/a\0b", True, SpoolUnavailable, "null byte"),
}


@pytest.mark.parametrize(("url", "create", "kind", "message"), NO_SPOOL.values(), ids=NO_SPOOL.keys())
def test_opening_what_is_no_spool(
    url: str, create: bool, kind: type[SpoolCheckError], message: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(kind) as caught:
        open_spool(url.format(folder=tmp_path), create=create)
    assert message in str(caught.value).lower()


def test_bundle_errors_reach_the_loader(tmp_path: Path) -> None:
    with open_spool(tmp_path) as spool:
        spool.publish(call(0))
        path = next(tmp_path.glob("rank0/step0/*.safetensors"))
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(BundleError):
            taken(spool).load()


def _calls_of_two_kinds(spool: Spool) -> None:
    for seq in range(6):
        dtype = torch.float16 if seq % 3 == 0 else torch.complex128 if seq % 3 == 1 else torch.float32
        spool.publish(call(seq, torch.ones(2, dtype=dtype), rank=seq % 2, step=seq // 2))


QUESTIONS = {
    "all": (None, [0, 1, 2, 3, 4, 5]),
    "rank": (lambda waiting: waiting.rank == 1, [1, 3, 5]),
    "step": (lambda waiting: waiting.step == 1, [2, 3]),
    "api": (lambda waiting: waiting.api == "Torch.add.4", [4]),
    "dtype": (lambda waiting: "float16" in waiting.dtypes(), [0, 3]),
    "stored as pairs": (lambda waiting: "complex128" in waiting.dtypes(), [1, 4]),
    "session": (lambda waiting: waiting.header().session == "s1", [0, 1, 2, 3, 4, 5]),
    "nothing": (lambda waiting: False, []),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_is_not_wanted_stays(name: str, make: Maker) -> None:
    spool = make()
    _calls_of_two_kinds(spool)
    wanted, seqs = QUESTIONS[name]
    assert [w.seq for w in spool.waiting() if wanted is None or wanted(w)] == sorted(seqs, key=lambda s: (s % 2, s))
    assert sorted(key[3] for key in drain(spool, wanted=wanted)) == seqs
    assert spool.stats().ready == 6 - len(seqs)
    assert len(drain(spool)) == 6 - len(seqs), "another question finds the rest"


def test_a_bundle_that_went_while_it_was_looked_at_is_told(tmp_path: Path) -> None:
    with open_spool(tmp_path, options=PLAIN) as spool:
        spool.publish(call(0))
        [waiting] = spool.waiting()
        drain(spool)
        with pytest.raises(SpoolUnavailable, match="another reader may have it"):
            waiting.dtypes()

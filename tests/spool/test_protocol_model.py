"""The protocol on a file system that lies as NFS does: whatever dies, pauses or is lost, no call is lost, none has two rows.

A state machine makes up histories of a writer and of readers on hosts of their own. "Row" stands for the durable result line:
one that is written twice for a call counts once, as in a results folder.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from nfs_model import Host, Server
from spool_bundles import call

from spool import SessionInfo, SpoolError, SpoolOptions, load_bundle
from spool import claims as claims_module
from spool import janitor as janitor_module
from spool import listing as listing_module
from spool.directory import DirectorySpool
from spool.interface import Claim

ROOT = Path("/export/spool")
# Nobody dies of silence here: the machine says who is taken for dead. No number of deaths makes a bundle suspect.
OPTIONS = SpoolOptions(fsync="bundle", reserve_bytes=0, stale_after=10_000.0, attempts=1000, when_full="drop")
LOST = (errno.EIO, errno.ETIMEDOUT, errno.ENOENT)


class Reader:
    """A reader on a host of its own, and what it holds."""

    def __init__(self, host: Host, name: str) -> None:
        self.host = host
        self.spool = DirectorySpool(ROOT, options=OPTIONS, consumer=name)
        self.held: list[Claim] = []
        # Their rows are durable; they are still to be deleted.
        self.finished: list[Claim] = []


class Protocol(RuleBasedStateMachine):
    """One writer, two readers; readers are replaced when they die."""

    @initialize(version3=st.lists(st.booleans(), min_size=3, max_size=3))
    def begin(self, version3: list[bool]) -> None:
        self.server = Server(ROOT)
        self.patch = pytest.MonkeyPatch()
        self.server.install(self.patch.setattr)
        self.dead: set[str] = set()
        dead = self.dead
        self.patch.setattr(janitor_module.Observer, "_is_dead", lambda self, owner, content, elapsed: owner in dead)
        # The lock of the one janitor is another file system's business; each rename has one winner without it.
        self.patch.setattr(janitor_module.Janitor, "take_back_alone", janitor_module.Janitor._take_back)
        self.patch.setattr(claims_module, "read_bundle", lambda path: load_bundle(self.server.read(path)))
        self.hosts = [Host(version) for version in version3]
        self.published: set[int] = set()
        self.rows: Counter[int] = Counter()
        self.forgiven: set[int] = set()
        self.next = self.names = 0
        self.server.host = self.hosts[0]
        self.writer = DirectorySpool(ROOT, options=OPTIONS)
        self.writer.open_session(SessionInfo("s1", 0, "writer", 1, "0", 0.0))
        self.readers = [self._reader(1), self._reader(2)]

    def _reader(self, host: int) -> Reader:
        self.names += 1
        self.server.host = self.hosts[host]
        return Reader(self.hosts[host], f"reader{self.names}")

    def _as(self, number: int) -> Reader:
        reader = self.readers[number]
        self.server.host = reader.host
        reader.spool._janitor._next = float("-inf")
        return reader

    @rule(step=st.integers(0, 2))
    def publish(self, step: int) -> None:
        self.server.host = self.hosts[0]
        number = self.next
        self.next += 1
        try:
            kept = self.writer.publish(call(number, step=step))
        except SpoolError:
            # The writer was told that it failed: then it must not be there.
            kept = False
        if kept:
            self.published.add(number)

    @rule(number=st.integers(0, 1))
    def claim(self, number: int) -> None:
        reader = self._as(number)
        try:
            claim = reader.spool.claim()
        except SpoolError:
            return
        if claim is not None:
            reader.held.append(claim)

    @rule(number=st.integers(0, 1), dies=st.booleans())
    def judge(self, number: int, dies: bool) -> None:
        """Load, write the row, delete; or die between row and deletion."""
        reader = self._as(number)
        if not reader.held:
            return
        claim = reader.held.pop(0)
        try:
            bundle = claim.load()
        except SpoolError:
            # Fenced: somebody else has it.
            self.forgiven.add(claim.seq)
            return
        assert bundle.header.seq == claim.seq
        self.rows[claim.seq] += 1
        if dies:
            self.forgiven.add(claim.seq)
            self._die(number)
            return
        reader.finished.append(claim)
        self._delete(reader)

    def _delete(self, reader: Reader) -> None:
        """What is finished; what cannot be deleted now is tried again, as the engine does."""
        while reader.finished:
            try:
                fenced = not reader.finished[0].done()
            except SpoolError:
                return
            claim = reader.finished.pop(0)
            if fenced:
                self.forgiven.add(claim.seq)

    @rule(number=st.integers(0, 1))
    def delete(self, number: int) -> None:
        self._delete(self._as(number))

    @rule(number=st.integers(0, 1))
    def give_back(self, number: int) -> None:
        reader = self._as(number)
        if reader.held:
            try:
                reader.held.pop().release()
            except SpoolError:
                # It keeps the file in its folder; whoever takes it back may judge it.
                self._die(number)

    @rule(number=st.integers(0, 1))
    def catches_up(self, number: int) -> None:
        """A reader that lives finishes what it holds and what waits: then nothing is its own without its knowing."""
        reader = self._as(number)
        own = reader.spool._consumer.own
        if own in self.dead:
            return
        self.server.faults.clear()
        self._delete(reader)
        for claim in reader.held:
            claim.release()
        reader.held.clear()
        while (claim := reader.spool.claim()) is not None:
            self.rows[claim.load().header.seq] += 1
            assert claim.done()
        folder = self.server.folders.get(str(ROOT / "claimed" / own))
        assert folder is None or not folder.files, "claims that nobody would judge as long as it lives"

    @rule(number=st.integers(0, 1))
    def die(self, number: int) -> None:
        self._die(number)

    def _die(self, number: int) -> None:
        reader = self._as(number)
        self.forgiven |= {claim.seq for claim in reader.finished}
        self.dead.add(reader.spool._consumer.own)
        self.readers[number] = self._reader(number + 1)

    @rule(number=st.integers(0, 1))
    def is_taken_for_dead(self, number: int) -> None:
        """Paused for long: others take back what it holds, and it goes on without knowing."""
        reader = self._as(number)
        self.dead.add(reader.spool._consumer.own)
        self.forgiven |= {claim.seq for claim in (*reader.held, *reader.finished)}

    @rule(happened=st.booleans(), number=st.sampled_from(LOST))
    def a_reply_is_lost(self, happened: bool, number: int) -> None:
        # That a file is not there is never said of one that is, except where the first try has moved it.
        self.server.faults = [(happened or number == errno.ENOENT, number)]

    @rule(happened=st.booleans(), error=st.sampled_from(LOST), number=st.integers(0, 1))
    def a_claim_loses_its_reply(self, happened: bool, error: int, number: int) -> None:
        reader = self._as(number)
        self.server.faults.clear()
        # The consumer's first record is renamed too: this is about the bundle.
        reader.spool._consumer.join()
        self.a_reply_is_lost(happened, error)
        self.claim(number)
        self.server.faults.clear()

    @rule()
    def the_clock_ticks(self) -> None:
        self.server.clock += 1

    @invariant()
    def no_call_is_judged_twice_without_reason(self) -> None:
        twice = {number for number, count in getattr(self, "rows", Counter()).items() if count > 1}
        assert twice <= getattr(self, "forgiven", set())

    def teardown(self) -> None:
        if not hasattr(self, "server"):
            return
        try:
            self._drain()
        finally:
            self.patch.undo()

    def _drain(self) -> None:
        """The readers that live go on to the end, then all die; a new one gets everything."""
        self.server.faults.clear()
        for number in range(2):
            self.catches_up(number)
        for number in range(2):
            self._die(number)
        self.patch.setattr(listing_module, "_TOUCH_EVERY_S", -1.0)
        for _ in range(3):
            reader = self._as(0)
            while (claim := reader.spool.claim()) is not None:
                self.rows[claim.load().header.seq] += 1
                assert claim.done()
            self.server.clock += 1
        assert self.published <= set(self.rows), f"lost: {sorted(self.published - set(self.rows))}"
        left = [f"{path}/{name}" for path, folder in self.server.folders.items() for name in folder.files]
        assert not [name for name in left if name.endswith(".safetensors")], left


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.getLogger("spool_check").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("spool_check").setLevel(logging.NOTSET)


@pytest.mark.parametrize("examples", [40, pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.timeout(1500)])])
def test_every_history_ends_well(examples: int) -> None:
    checks: Any = [HealthCheck.too_slow]
    rules = settings(
        max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=checks, derandomize=True
    )
    run_state_machine_as_test(Protocol, settings=rules)

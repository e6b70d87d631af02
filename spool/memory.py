"""A spool in this process's memory: for tests, and as the second peer that keeps the interface honest."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from .bundle import Bundle
from .codec import dump_bundle, load_bundle
from .errors import SpoolUnavailable
from .interface import Claim, Session, SessionInfo, SessionRecord, Spool, SpoolStats
from .names import bundle_name
from .options import SpoolOptions
from .room import SAMPLE_EVERY
from .waiting import Waiting, WaitingBytes, Wanted

Place = tuple[int, int, int, str]


@dataclass(frozen=True)
class BytesSource:
    """The bundle's bytes: they travel with the handle."""

    data: bytes

    def load(self) -> Bundle:
        """The bundle; BundleError when it cannot be used."""
        return load_bundle(self.data)


@dataclass(frozen=True)
class _Entry:
    data: bytes
    attempt: int
    since: float


class MemorySpool(Spool):
    """Bundles as bytes in dictionaries, one lock around all."""

    url = "memory:"
    durable = False
    shareable = False

    def __init__(self, options: SpoolOptions | None = None) -> None:
        self.options = options or SpoolOptions()
        self.wake = threading.Event()
        self.quarantine: dict[Place, tuple[bytes, str]] = {}
        self._ready: dict[int, OrderedDict[Place, _Entry]] = {}
        self._claimed: dict[Place, _Entry] = {}
        self._sessions: dict[tuple[int, str], SessionRecord] = {}
        self._changed = threading.Condition()
        self._last_rank = -1
        self._fenced = self._full_calls = 0
        self._closed = False

    def publish(self, bundle: Bundle) -> bool:
        header = bundle.header
        place = (header.rank, header.step, header.seq, header.api)
        data = dump_bundle(bundle)
        with self._changed:
            if self._closed:
                raise SpoolUnavailable("the memory spool is closed")
            if not self._wait_for_room(header.rank, len(data)):
                return False
            if place in self._ready.get(header.rank, {}) or place in self._claimed:
                raise SpoolUnavailable(f"{bundle_name(header.seq, header.api)} of rank {header.rank} is already there")
            self._put(place, _Entry(data, 0, time.monotonic()))
        return True

    def _wait_for_room(self, rank: int, size: int) -> bool:
        options = self.options

        def room() -> bool:
            waiting = [*self._ready[rank].values()] if rank in self._ready else []
            if self._closed or not waiting:
                return True
            limit = options.max_pending_bytes
            fits = limit is None or sum(len(entry.data) for entry in waiting) + size <= limit
            return fits and len(waiting) < options.max_pending_bundles

        if room():
            return True
        self._full_calls += 1
        sampled = options.when_full == "sample" and self._full_calls % SAMPLE_EVERY == 1
        if options.when_full != "block" and not sampled:
            return False
        return self._changed.wait_for(room, options.block_timeout)

    def _put(self, place: Place, entry: _Entry) -> None:
        queue = self._ready.setdefault(place[0], OrderedDict())
        in_order = not queue or next(reversed(queue)) < place
        queue[place] = entry
        if not in_order:
            for later in sorted(queue):
                queue.move_to_end(later)
        self.wake.set()
        self._changed.notify_all()

    def claim(
        self, timeout: float = 0.0, *, ranks: Collection[int] | None = None, wanted: Wanted | None = None
    ) -> Claim | None:
        with self._changed:
            place = self._changed.wait_for(lambda: self._next(ranks, wanted), timeout)
            if place is None:
                return None
            self._last_rank = place[0]
            entry = self._ready[place[0]].pop(place)
            self._claimed[place] = entry
            self._changed.notify_all()
            return _MemoryClaim(self, place, entry)

    def waiting(self, *, ranks: Collection[int] | None = None) -> Iterator[Waiting]:
        with self._changed:
            found = [
                WaitingBytes(entry.data, *place)
                for rank, queue in sorted(self._ready.items())
                if ranks is None or rank in ranks
                for place, entry in queue.items()
            ]
        yield from found

    def _next(self, ranks: Collection[int] | None, wanted: Wanted | None) -> Place | None:
        """The first bundle that is wanted of the rank whose turn it is."""
        waiting = sorted(rank for rank, queue in self._ready.items() if queue and (ranks is None or rank in ranks))
        turns = [rank for rank in waiting if rank > self._last_rank] + [r for r in waiting if r <= self._last_rank]
        for rank in turns:
            for place, entry in self._ready[rank].items():
                if wanted is None or wanted(WaitingBytes(entry.data, *place)):
                    return place
        return None

    def _finish(self, place: Place, entry: _Entry, *, back: bool = False, reason: str | None = None) -> bool:
        with self._changed:
            if self._claimed.get(place) is not entry:
                self._fenced += 1
                return False
            del self._claimed[place]
            if reason is not None:
                self.quarantine[place] = (entry.data, reason)
            elif back:
                self._put(place, replace(entry))
            self._changed.notify_all()
            return True

    def open_session(self, info: SessionInfo) -> Session:
        return _MemorySession(self, info)

    def _record(self, record: SessionRecord) -> None:
        with self._changed:
            self._sessions[record.rank, record.session] = record
            self.wake.set()

    def sessions(self) -> list[SessionRecord]:
        with self._changed:
            return list(self._sessions.values())

    def stats(self) -> SpoolStats:
        with self._changed:
            by_rank = {rank: len(queue) for rank, queue in sorted(self._ready.items()) if queue}
            since = [entry.since for queue in self._ready.values() for entry in queue.values()]
            return SpoolStats(
                ready=sum(by_rank.values()),
                claimed=len(self._claimed),
                quarantined=len(self.quarantine),
                oldest_age_s=time.monotonic() - min(since) if since else None,
                ready_by_rank=by_rank,
                fenced=self._fenced,
            )

    def retry_quarantined(self) -> int:
        with self._changed:
            again, self.quarantine = self.quarantine, {}
            for place, (data, _) in again.items():
                self._put(place, _Entry(data, 0, time.monotonic()))
        return len(again)

    def tidy(self) -> None:
        """Nothing is ever left empty here."""

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class _MemoryClaim(Claim):
    def __init__(self, spool: MemorySpool, place: Place, entry: _Entry) -> None:
        self.rank, self.step, self.seq, self.api = self._place = place
        self.name = bundle_name(self.seq, self.api)
        self.attempt = entry.attempt
        self.source = BytesSource(entry.data)
        self._spool, self._entry = spool, entry

    def done(self) -> bool:
        return self._spool._finish(self._place, self._entry)

    def fail(self, reason: str) -> None:
        self._spool._finish(self._place, self._entry, reason=reason)

    def release(self, *, failed_attempt: bool = False) -> None:
        attempt = self.attempt + failed_attempt
        if attempt >= self._spool.options.attempts:
            self.fail(f"{attempt} attempts failed")
            return
        with self._spool._changed:
            if self._spool._claimed.get(self._place) is self._entry:
                self._entry = self._spool._claimed[self._place] = replace(self._entry, attempt=attempt)
        self._spool._finish(self._place, self._entry, back=True)


class _MemorySession(Session):
    def __init__(self, spool: MemorySpool, info: SessionInfo) -> None:
        self.info = info
        self._spool, self._record = spool, SessionRecord(**asdict(info), heartbeat=time.time())
        spool._record(self._record)

    def _update(self, state: str, counts: Mapping[str, int]) -> None:
        beat = self._record.beat + 1
        self._record = replace(self._record, state=state, counts=dict(counts), beat=beat, heartbeat=time.time())
        self._spool._record(self._record)

    def heartbeat(self, counts: Mapping[str, int]) -> None:
        self._update(self._record.state, counts)

    def close(self, state: str = "closed", counts: Mapping[str, int] | None = None) -> None:
        self._update(state, self._record.counts if counts is None else counts)

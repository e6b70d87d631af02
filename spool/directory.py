"""The directory spool: files as the queue, atomic renames as the only lock.

::

    {spool}/rank{R}/session-{id}.json                       a writer: open, closed or failed, counts, heartbeat
    {spool}/rank{R}/step{S}/{seq:08d}.{API}.safetensors     ready
    {spool}/claimed/{consumer}.{generation}/r{R}.t{S}.…     taken by that consumer
    {spool}/consumers/{consumer}.{generation}.json          its heartbeat
    {spool}/quarantine/rank{R}/step{S}/…                    never deleted; a JSON beside each says why
    {spool}/spare                                           room for a reader that starts on a full disk

Publish: write a hidden temporary name, checked close, sync by policy, rename. Claim: one rename out of the step folder;
ENOENT means that somebody else was quicker. End: the caller makes its result durable, then `done` unlinks the claim; ENOENT
there means fenced. A name that does not parse is no bundle and is left alone. docs/spool-protocol.md has the whole.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter as Tally
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import files, spare
from .bundle import Bundle
from .claims import DirectoryClaim
from .codec import encode_bundle
from .consumers import Consumer
from .counting import Counter, waiting_of
from .errors import SpoolError, SpoolUnavailable
from .interface import Claim, Session, SessionInfo, SessionRecord, Spool, SpoolStats
from .janitor import Janitor
from .listing import Listing, bundles_in, ranks_of, steps_of
from .moves import Mover
from .names import BundleName, Place
from .options import SpoolOptions
from .publisher import Publisher
from .room import Room, full
from .session_files import SessionFile, read_sessions, sessions_in
from .waiting import Waiting, WaitingFile, Wanted

log = logging.getLogger("spool_check.spool")

# Polling backs off from the first to the second of these, in seconds; a pause is also so many times as long as the look took.
_POLL = (0.01, 0.5)
_LOOK_SHARE = 9
_LONGEST_PAUSE = 10.0
# How often one look at the spool tries for a name that is listed and not there.
_TRIES = 3


class DirectorySpool(Spool):
    """A spool in a directory that any number of writers and readers, on any number of hosts, may share.

    One object may be used by several threads.
    """

    durable = True
    shareable = True

    def __init__(self, root: Path, *, options: SpoolOptions | None = None, consumer: str | None = None) -> None:
        self.root, self.url = root, str(root)
        self.options = options or SpoolOptions()
        self.wake = threading.Event()
        self._publisher = Publisher(root, self.options)
        self._tags: dict[str, str] = {}
        sizes = self.options.max_pending_bytes is not None
        self._room = Room(root, self.options, lambda rank: waiting_of(root, rank, sizes=sizes))
        self._mover = Mover(root, self.options)
        self._consumer = Consumer(root, consumer, self.options)
        self._janitor = Janitor(root, stale_after=self.options.stale_after, give_back=self._mover.give_back)
        self._listing = Listing(root)
        self._counter = Counter(root)
        self._claims: set[DirectoryClaim] = set()
        self._doubtful = False
        self._fenced = 0
        self._lock = threading.Lock()

    def publish(self, bundle: Bundle) -> bool:
        header = bundle.header
        buffers = encode_bundle(bundle)
        if not self._room.enter(header.rank, sum(map(len, buffers))):
            return False
        name = BundleName(header.seq, header.api, tag=self._tags.get(header.session, ""))
        place = Place(header.rank, header.step, str(name))
        with self._translated(f"{place.ready}: the call was not published"):
            self._publisher.publish(place, buffers)
        return True

    def open_session(self, info: SessionInfo) -> Session:
        folder = self.root / f"rank{info.rank}"
        with self._translated(f"{folder.name}: the session could not be opened"):
            first = files.make_folder(folder, files.folder_mode(self.options.mode))
        session = SessionFile(folder, info, self.options.mode, first=first)
        self._tags[info.session] = session.tag
        spare.keep(self.root, self.options.mode)
        return session

    def claim(
        self, timeout: float = 0.0, *, ranks: Collection[int] | None = None, wanted: Wanted | None = None
    ) -> Claim | None:
        deadline = time.monotonic() + timeout
        pause = _POLL[0]
        while True:
            self.wake.clear()
            started = time.monotonic()
            try:
                with self._lock:
                    self._listing.ask(wanted)
                    claim = self._claim_now(ranks)
                if claim is not None:
                    return claim
            except OSError as error:
                # An outage of the mount is not "all deleted": wait for it to come back, within the caller's patience.
                if time.monotonic() >= deadline or error.errno in files.REFUSED:
                    remedy = "is it still mounted, and may this user write there?"
                    raise SpoolUnavailable(
                        f"{self.root}: nothing could be claimed: {error.strerror}; {remedy}"
                    ) from error
            now = time.monotonic()
            if now >= deadline:
                return None
            rest = min(max(pause, _LOOK_SHARE * (now - started)), _LONGEST_PAUSE)
            self.wake.wait(min(rest, deadline - now))
            pause = min(2 * pause, _POLL[1])

    def waiting(self, *, ranks: Collection[int] | None = None) -> Iterator[Waiting]:
        with self._translated("the bundles could not be listed"):
            for rank, folder in sorted(ranks_of(self.root)):
                if ranks is None or rank in ranks:
                    for step, inside in sorted(steps_of(folder)):
                        for place, parsed in sorted(bundles_in(inside, rank, step), key=lambda found: found[1].seq):
                            yield WaitingFile.at(self.root, place, parsed)

    def _claim_now(self, ranks: Collection[int] | None) -> DirectoryClaim | None:
        """One bundle if there is any. Raises OSError."""
        self._consumer.join()
        self._janitor.visit(self._consumer.own)
        # NFS 3 may list for many seconds what has gone: a name that is never there is not tried for ever.
        tries: Tally[Place] = Tally()
        looked = False
        while True:
            tried = False
            while (found := self._listing.next(ranks)) is not None:
                if tries[found[0]] == _TRIES:
                    continue
                tried = True
                tries[found[0]] += 1
                claim = self._take(*found)
                if claim is not None:
                    return claim
            if (looked and not tried) or not self._listing.refresh(ranks):
                if not self._put_right():
                    return None
                tries.clear()
            looked = True

    def _put_right(self) -> bool:
        """Give back what is ours without our knowing; whether there was any. Raises OSError.

        NFS may carry out a rename, lose the reply, send it again and say ENOENT. Looking each time would cost a listing for
        each lost race, so it is done once there is nothing else to do.
        """
        if not self._doubtful:
            return False
        known = {claim.path.name for claim in list(self._claims)}
        strays = self._mover.give_back_others(self._consumer.folder, known)
        self._doubtful = False
        for stray in strays:
            self._listing.put_back(*stray)
        return bool(strays)

    def _take(self, place: Place, parsed: BundleName) -> DirectoryClaim | None:
        target = self._consumer.folder / place.claimed
        try:
            files.rename(self.root / place.ready, target)
        except OSError as error:
            self._doubtful = True
            if error.errno not in files.GONE:
                # A lost reply on NFS: the rename may have happened, and then the bundle is ours.
                if place.claimed not in files.names_if_any(target.parent):
                    raise
            else:
                # RACE: somebody was quicker, or our own folder is gone: a janitor that took us for dead removes it.
                self._listing.lost(place.rank)
                self._consumer.make_folder_again()
                return None
        self._listing.took(place.rank)
        if parsed.attempt >= self.options.attempts:
            self._mover.quarantine(target, place, f"{parsed.attempt} attempts failed")
            return None
        claim = DirectoryClaim(self, place, parsed, target)
        self._claims.add(claim)
        return claim

    # What claims do to their spool.

    def _finish(self, claim: DirectoryClaim) -> bool:
        with self._translated(f"{claim.path}: the bundle could not be deleted"):
            try:
                files.unlink(claim.path)
            except OSError as error:
                if error.errno not in files.GONE:
                    raise
                self._lose(claim)
                return False
        self._claims.discard(claim)
        return True

    def _fail(self, claim: DirectoryClaim, reason: str) -> None:
        with self._translated(f"{claim.path}: the bundle could not be put into quarantine"):
            if self._mover.quarantine(claim.path, claim.place, reason):
                self._claims.discard(claim)
            else:
                self._lose(claim)

    def _release(self, claim: DirectoryClaim, *, failed_attempt: bool) -> None:
        with self._translated(f"{claim.path}: the bundle could not be given back"), self._lock:
            back = self._mover.give_back(claim.path.parent, claim.path.name, failed_attempt=failed_attempt)
            self._claims.discard(claim)
            if back is not None:
                self._listing.put_back(*back)

    def _lose(self, claim: DirectoryClaim) -> None:
        self._claims.discard(claim)
        self._fenced += 1
        log.warning("%s: taken back while it was judged here (fenced)", claim.place.ready)

    # Both sides.

    def sessions(self) -> list[SessionRecord]:
        with self._translated("the sessions could not be read"):
            return list(read_sessions(self.root))

    def stats(self) -> SpoolStats:
        with self._translated("the bundles could not be counted"):
            return self._counter.stats(self._fenced)

    def retry_quarantined(self) -> int:
        with self._translated("the quarantine could not be emptied"):
            return self._mover.retry_quarantined()

    def tidy(self) -> None:
        """Remove step folders that are empty and that their writer has left for a later step."""
        with suppress(OSError):
            for _, folder in ranks_of(self.root):
                steps = sorted(steps_of(folder))
                closed = all(record.state != "open" for record in sessions_in(folder))
                for _, inside in steps if closed else steps[:-1]:
                    # ENOTEMPTY: not yet, or a name that NFS keeps for an open file; the next visit tries again.
                    with suppress(OSError):
                        files.remove_folder(inside)

    def close(self) -> None:
        for claim in list(self._claims):
            with suppress(SpoolError):
                claim.release()
        with self._lock:
            with suppress(OSError):
                self._put_right()
            self._consumer.leave()

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """The one border where errors of the system become ours."""
        try:
            yield
        except OSError as error:
            if error.errno in files.FULL:
                raise full(error, f"{self.root}: {what}") from error
            raise SpoolUnavailable(f"{self.root}: {what}: {error.strerror}; is it mounted and writable?") from error

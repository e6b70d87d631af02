"""The directory spool: files as the queue, atomic renames as the only lock.

::

    {spool}/rank{R}/session-{id}.json                       a writer: open, closed or failed, counts, heartbeat
    {spool}/rank{R}/step{S}/{seq:08d}.{API}.safetensors     ready
    {spool}/claimed/{consumer}.{generation}/r{R}.t{S}.…     taken by that consumer
    {spool}/consumers/{consumer}.{generation}.json          its heartbeat
    {spool}/quarantine/rank{R}/step{S}/…                    never deleted; a JSON beside each says why

Publish: write a hidden temporary name, checked close, sync by policy, rename. Claim: one rename out of the step folder;
ENOENT means that somebody else was quicker. End: the caller makes its result durable, then `done` unlinks the claim; ENOENT
there means fenced. A name that does not parse is no bundle and is left alone. docs/spool-protocol.md has the whole.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from . import files
from .bundle import Bundle
from .codec import encode_bundle, read_bundle
from .consumers import CLAIMED, CONSUMERS, Heartbeat, Janitor, new_consumer_name
from .errors import BundleCorrupt, SpoolError, SpoolUnavailable
from .interface import Claim, Session, SessionInfo, SessionRecord, Spool, SpoolStats
from .listing import Listing, ranks_of, steps_of, waiting_in
from .names import BundleName, Place, parse_bundle_name, parse_claim_name
from .options import SpoolOptions
from .room import Room, full
from .session_files import SessionFile, read_sessions

log = logging.getLogger("spool_check.spool")

QUARANTINE = "quarantine"
# Polling backs off from the first to the second of these, in seconds.
_POLL = (0.01, 0.5)


@dataclass(frozen=True)
class FileSource:
    """A claimed file, loaded with one read by whichever process of this host has the handle."""

    path: str

    def load(self) -> Bundle:
        """The bundle; BundleError when it cannot be used."""
        try:
            return read_bundle(self.path)
        except OSError as error:
            raise BundleCorrupt(f"{self.path}: {error.strerror}") from error


class DirectorySpool(Spool):
    """A spool in a directory that any number of writers and readers, on any number of hosts, may share."""

    durable = True
    shareable = True

    def __init__(self, root: Path, *, options: SpoolOptions | None = None, consumer: str | None = None) -> None:
        self.root, self.url = root, str(root)
        self.options = options or SpoolOptions()
        self.wake = threading.Event()
        policy = self.options.fsync
        self._sync = policy == "bundle" or (policy == "auto" and files.is_network(root))
        self._temporary = itertools.count()
        self._folders: set[Path] = set()
        self._tags: dict[str, str] = {}
        self._room = Room(root, self.options, self._count_waiting)
        self._name = consumer
        self._heartbeat: Heartbeat | None = None
        self._janitor: Janitor | None = None
        self._own = ""
        self._listing = Listing(root)
        self._open: set[_DirectoryClaim] = set()
        self.fenced = 0

    # The writer's side.

    def publish(self, bundle: Bundle) -> bool:
        header = bundle.header
        buffers = encode_bundle(bundle)
        size = sum(map(len, buffers))
        if not self._room.enter(size):
            return False
        name = str(BundleName(header.seq, header.api, tag=self._tags.get(header.session, "")))
        folder = self.root / f"rank{header.rank}" / f"step{header.step}"
        temporary = folder / f".{os.getpid()}-{threading.get_ident()}-{next(self._temporary)}.tmp"
        target = folder / name
        try:
            self._make(folder)
            try:
                written = files.write_new(temporary, buffers, mode=self.options.mode, sync=self._sync)
            except FileNotFoundError:
                # RACE: a reader may remove an empty step folder between our mkdir and our open.
                self._folders.discard(folder)
                self._make(folder)
                written = files.write_new(temporary, buffers, mode=self.options.mode, sync=self._sync)
            self._reveal(temporary, target, written)
        except OSError as error:
            if error.errno in files.FULL:
                raise full(error, target) from error
            raise SpoolUnavailable(f"{target}: {error.strerror}; the call was not published") from error
        return True

    def _make(self, folder: Path) -> None:
        if folder not in self._folders:
            files.make_folder(folder.parent)
            files.make_folder(folder)
            self._folders.add(folder)

    @staticmethod
    def _reveal(temporary: Path, target: Path, written: tuple[int, int]) -> None:
        try:
            files.rename(temporary, target)
        except OSError:
            # A lost reply on NFS reports failure for a rename that happened: the inode tells.
            with contextlib.suppress(OSError):
                if files.inode(target) == written:
                    return
            with contextlib.suppress(OSError):
                files.unlink(temporary)
            raise

    def _count_waiting(self) -> tuple[int, int]:
        """Bundles and bytes that wait, over all ranks; only asked for when the estimate reaches a limit."""
        count = size = 0
        for rank, folder in ranks_of(self.root):
            for place, _ in waiting_in(folder, rank):
                count += 1
                if self.options.max_pending_bytes is not None:
                    with contextlib.suppress(OSError):
                        size += os.stat(self.root / place.ready).st_size
        return count, size

    def open_session(self, info: SessionInfo) -> Session:
        folder = self.root / f"rank{info.rank}"
        try:
            files.make_folder(folder)
            session = SessionFile(folder, info, self.options.mode)
            others = [name for name in files.names(folder) if name.startswith("session-")]
        except OSError as error:
            raise SpoolUnavailable(f"{folder}: {error.strerror}; the session could not be opened") from error
        if len(others) > 1:
            # Another session numbers its calls from zero too, and a name is never used twice.
            self._tags[info.session] = f"{int.from_bytes(info.session.encode()[-16:], 'big') % 2**32:08x}"
        return session

    # The reader's side.

    def claim(self, timeout: float = 0.0, *, ranks: Collection[int] | None = None) -> Claim | None:
        self._become_consumer()
        deadline = time.monotonic() + timeout
        pause = _POLL[0]
        while True:
            self.wake.clear()
            while (found := self._listing.next(ranks)) is not None:
                claim = self._take(*found)
                if claim is not None:
                    return claim
            assert self._janitor is not None
            self._janitor.visit()
            try:
                if self._listing.refresh(ranks):
                    continue
            except OSError as error:
                # An outage of the mount is not "all deleted": wait for it to come back, within the caller's patience.
                if time.monotonic() >= deadline:
                    raise SpoolUnavailable(f"{self.root}: {error.strerror}; is it still mounted?") from error
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self.wake.wait(min(pause, left))
            pause = min(2 * pause, _POLL[1])

    def _become_consumer(self) -> None:
        if self._heartbeat is not None:
            return
        self._own = f"{self._name or new_consumer_name()}.1"
        try:
            for folder in (CLAIMED, CONSUMERS, f"{CLAIMED}/{self._own}"):
                files.make_folder(self.root / folder)
            stale = self.options.stale_after
            self._heartbeat = Heartbeat(self.root, self._own, stale_after=stale, mode=self.options.mode)
        except OSError as error:
            raise SpoolUnavailable(f"{self.root}: {error.strerror}; a reader must be able to write there") from error
        self._janitor = Janitor(self.root, self._own, stale_after=stale, give_back=self._give_back)

    def _take(self, place: Place, parsed: BundleName) -> _DirectoryClaim | None:
        source, target = self.root / place.ready, self.root / CLAIMED / self._own / place.claimed
        try:
            files.rename(source, target)
        except OSError as error:
            if error.errno not in files.GONE:
                raise SpoolUnavailable(f"{source}: {error.strerror}; the bundle cannot be claimed") from error
            # RACE: gone, or our own folder is: a janitor that took us for dead removes it.
            if not target.parent.exists():
                files.make_folder(target.parent)
            self._listing.lost(place)
            return None
        claim = _DirectoryClaim(self, place, parsed, target)
        self._open.add(claim)
        if parsed.attempt >= self.options.attempts:
            claim.fail(f"{parsed.attempt} attempts failed")
            return None
        return claim

    def _give_back(self, folder: Path, name: str, *, failed_attempt: bool = True) -> None:
        """Rename a claimed file to where it came from, one attempt older; at the limit, into quarantine."""
        found = parse_claim_name(name)
        if found is None:
            return
        place, parsed = found
        older = replace(parsed, attempt=parsed.attempt + failed_attempt)
        back = Place(place.rank, place.step, str(older))
        if older.attempt >= self.options.attempts:
            self._quarantine(folder / name, back, f"{older.attempt} attempts failed: each time the reader died on it")
            return
        target = self.root / back.ready
        for _ in range(2):
            try:
                files.rename(folder / name, target)
                return
            except OSError as error:
                if error.errno not in files.GONE:
                    raise
                # RACE: somebody gave it back already, or the empty step folder was removed.
                files.make_folder(target.parent.parent)
                files.make_folder(target.parent)

    def _quarantine(self, path: Path, place: Place, reason: str) -> None:
        folder = self.root / QUARANTINE / f"rank{place.rank}" / f"step{place.step}"
        for part in (folder.parent.parent, folder.parent, folder):
            files.make_folder(part)
        target = folder / place.file
        try:
            files.rename(path, target)
        except OSError as error:
            if error.errno in files.GONE:
                self.fenced += 1
                return
            raise
        record = {"reason": reason, "rank": place.rank, "step": place.step, "file": place.file, "time": time.time()}
        with contextlib.suppress(OSError):
            files.replace_small(target.with_suffix(".json"), json.dumps(record).encode(), mode=self.options.mode)
        log.warning("%s: quarantined: %s", place.ready, reason)

    # Both.

    def sessions(self) -> list[SessionRecord]:
        try:
            return list(read_sessions(self.root))
        except OSError as error:
            raise SpoolUnavailable(f"{self.root}: {error.strerror}") from error

    def stats(self) -> SpoolStats:
        try:
            by_rank: dict[int, int] = {}
            first: Path | None = None
            for rank, folder in sorted(ranks_of(self.root)):
                waiting = [place for place, _ in waiting_in(folder, rank)]
                if waiting:
                    by_rank[rank] = len(waiting)
                    oldest = self.root / min(waiting).ready
                    first = first or oldest
            age = None
            if first is not None:
                with contextlib.suppress(OSError):
                    age = max(0.0, time.time() - first.stat().st_mtime)
            return SpoolStats(
                ready=sum(by_rank.values()),
                claimed=self._count_in(CLAIMED, depth=1, claims=True),
                quarantined=self._count_in(QUARANTINE, depth=2, claims=False),
                oldest_age_s=age,
                ready_by_rank=by_rank,
                fenced=self.fenced,
            )
        except OSError as error:
            raise SpoolUnavailable(f"{self.root}: {error.strerror}") from error

    def _count_in(self, folder: str, *, depth: int, claims: bool) -> int:
        level = [self.root / folder]
        for _ in range(depth):
            level = [inner / name for inner in level for name in _names(inner)]
        parse = parse_claim_name if claims else parse_bundle_name
        return sum(parse(name) is not None for inner in level for name in _names(inner))

    def retry_quarantined(self) -> int:
        again = 0
        try:
            for rank, folder in ranks_of(self.root / QUARANTINE):
                for place, parsed in list(waiting_in(folder, rank)):
                    kept = self.root / QUARANTINE / place.ready
                    fresh = Place(place.rank, place.step, str(replace(parsed, attempt=0)))
                    target = self.root / fresh.ready
                    files.make_folder(target.parent.parent)
                    files.make_folder(target.parent)
                    files.rename(kept, target)
                    again += 1
                    with contextlib.suppress(OSError):
                        files.unlink(kept.with_suffix(".json"))
        except OSError as error:
            if error.errno not in files.GONE:
                raise SpoolUnavailable(f"{self.root / QUARANTINE}: {error.strerror}") from error
        return again

    def tidy(self) -> None:
        """Remove step folders that are empty and that their writer has left for a later step."""
        with contextlib.suppress(OSError):
            for _, folder in ranks_of(self.root):
                steps = sorted(steps_of(folder))
                closed = all(record.state != "open" for record in self._sessions_of(folder))
                for _, inside in steps if closed else steps[:-1]:
                    # ENOTEMPTY: not yet, or a name that NFS keeps for an open file; the next visit tries again.
                    with contextlib.suppress(OSError):
                        files.remove_folder(inside)

    def _sessions_of(self, folder: Path) -> list[SessionRecord]:
        return [record for record in read_sessions(self.root) if f"rank{record.rank}" == folder.name]

    def close(self) -> None:
        for claim in list(self._open):
            with contextlib.suppress(SpoolError, OSError):
                claim.release()
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None
            with contextlib.suppress(OSError):
                files.remove_folder(self.root / CLAIMED / self._own)


class _DirectoryClaim(Claim):
    def __init__(self, spool: DirectorySpool, place: Place, parsed: BundleName, path: Path) -> None:
        self.rank, self.step, self.seq, self.api = place.rank, place.step, parsed.seq, parsed.api
        self.name, self.attempt = place.file, parsed.attempt
        self.source = FileSource(str(path))
        self._spool, self._place, self._path = spool, place, path

    def done(self) -> bool:
        self._spool._open.discard(self)
        try:
            files.unlink(self._path)
        except OSError as error:
            if error.errno in files.GONE:
                self._spool.fenced += 1
                log.warning("%s: taken back while it was judged here (fenced)", self._place.ready)
                return False
            raise SpoolUnavailable(f"{self._path}: {error.strerror}; the bundle could not be deleted") from error
        return True

    def fail(self, reason: str) -> None:
        self._spool._open.discard(self)
        self._spool._quarantine(self._path, self._place, reason)

    def release(self, *, failed_attempt: bool = False) -> None:
        self._spool._open.discard(self)
        self._spool._give_back(self._path.parent, self._path.name, failed_attempt=failed_attempt)


def _names(folder: Path) -> list[str]:
    try:
        return files.names(folder)
    except OSError as error:
        if error.errno in files.GONE:
            return []
        raise

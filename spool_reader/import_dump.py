"""An offline dump of msprobe made into bundles, which any reader then judges like those of a training."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import xxhash

from spool import (
    Bundle,
    NotRepresentable,
    SessionInfo,
    Spool,
    SpoolError,
    SpoolFull,
    SpoolOptions,
    __version__,
    open_spool,
)

from .peer_dump import DumpedCall, DumpFolder, calls_of, find_dumps, read_table
from .terminal import sanitised

# Nobody reads meanwhile: what a training would wait for does not come.
_OPTIONS = SpoolOptions(max_pending_bundles=10**9, block_timeout=1.0)


@dataclass
class Imported:
    """What became of a dump's calls; `skipped` counts reasons, without the places in a call."""

    spool: str
    session: str
    calls: int = 0
    dumps: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    unread: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """3 when a part of the dump could not be read, 5 when there was no call in it."""
        return 3 if self.unread else 0 if self.calls else 5

    def to_json(self) -> dict[str, Any]:
        """The fields, with plain dictionaries."""
        return {**asdict(replace(self, skipped=Counter())), "skipped": dict(self.skipped)}


def import_dump(dump: Path, spool: str | Path, *, say: Callable[[str], None] = lambda text: None) -> Imported:
    """Publish every call of a dump into a spool, which is made if only its last folder is missing.

    A call that the dump does not hold whole becomes a bundle with the reason, so that it gets its skip row. A dump that
    is imported twice gives the same calls again, and results folders count each once.
    """
    folders = find_dumps(dump)
    tables: list[tuple[DumpFolder, Mapping[str, Any]]] = []
    unread = []
    session = xxhash.xxh3_64()
    for folder in folders:
        try:
            tables.append((folder, read_table(folder)))
        except SpoolError as error:
            if len(folders) == 1:
                raise
            unread.append(str(error))
            continue
        session.update(folder.json.read_bytes())
    with open_spool(spool, create=True, options=_OPTIONS) as opened:
        done = Imported(opened.url, f"msprobe-{session.hexdigest()}", unread=unread)
        for rank in dict.fromkeys(folder.rank for folder, _ in tables):
            _publish_rank(opened, rank, [part for part in tables if part[0].rank == rank], done, say)
    return done


def _publish_rank(
    spool: Spool,
    rank: int,
    parts: list[tuple[DumpFolder, Mapping[str, Any]]],
    done: Imported,
    say: Callable[[str], None],
) -> None:
    session = spool.open_session(SessionInfo(done.session, rank, "msprobe", 0, __version__, time.time()))
    state, published = "failed", 0
    try:
        next_seq: Counter[int] = Counter()
        for folder, table in parts:
            for call in calls_of(folder, table):
                bundle = _bundle(call, folder, done.session, next_seq[folder.step])
                next_seq[folder.step] += 1
                if not spool.publish(bundle):
                    raise SpoolFull(
                        f"{spool.url}: no room after {done.calls} calls; make room and import again, nothing is judged twice"
                    )
                done.calls += 1
                published += 1
                if bundle.header.skip is not None:
                    done.skipped[bundle.header.skip.partition(": ")[2] or bundle.header.skip] += 1
            done.dumps += 1
            say(f"rank {folder.rank} step {folder.step}: {done.calls} calls so far")
        state = "closed"
    finally:
        session.close(state, {"seen": published, "captured": published, "published": published})


def _bundle(call: DumpedCall, folder: DumpFolder, session: str, seq: int) -> Bundle:
    common: dict[str, Any] = {
        "session": session,
        "rank": folder.rank,
        "step": folder.step,
        "seq": seq,
        "api": call.api,
        "phase": call.phase,
        "context": {},
        "producer": {"host": "msprobe", "pid": 0, "version": __version__, "device": None},
        "time": folder.json.stat().st_mtime,
    }
    reason = call.skip
    if reason is None:
        try:
            return Bundle.build(args=call.args, kwargs=call.kwargs or {}, result=call.result, **common)
        except NotRepresentable as error:
            reason = str(error)
    return Bundle.unreplayable(reason=f"imported, not replayable: {reason}", **common)


def import_lines(done: Imported) -> Iterator[str]:
    """The same for people."""
    yield f"imported {done.calls} calls of {done.dumps} dumps into {done.spool} as session {done.session}"
    for reason, count in done.skipped.most_common(10):
        yield f"  {count} will be skipped: {sanitised(reason, 200)}"
    if len(done.skipped) > 10:
        yield f"  and {len(done.skipped) - 10} more reasons; each row has its own"
    yield from (f"  not read: {sanitised(text, 300)}" for text in done.unread)
    yield f"judge them with: spool-check reprocess {done.spool}"

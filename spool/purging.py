"""Purge: what dead processes have left in a directory spool is put right. Never touches what a live process owns.

Claims of dead consumers go back one attempt older, half-written files that have not changed for a grace period are deleted, and
sessions whose writer has died are marked failed, so that no reader waits for them. What a receiver of LAN mode keeps of closed
sessions goes when no bundle of their rank waits. Bundles are never deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import files
from .consumers import CLAIMED, CONSUMERS
from .counting import waiting_of
from .errors import SpoolUnavailable
from .janitor import Janitor, Observer
from .listing import ranks_of, steps_of
from .moves import QUARANTINE, Mover
from .names import parse_claim_name
from .options import SpoolOptions
from .process import parse_record
from .session_files import session_names

# A live owner that writes rarely still changes its record within this share of the time after which it counts as dead.
_LOOKS = 8


@dataclass(frozen=True)
class PurgeReport:
    """What was done, or with `dry_run` would be: paths below the spool."""

    dry_run: bool
    claims: tuple[str, ...]
    consumers: tuple[str, ...]
    temporaries: tuple[str, ...]
    sessions: tuple[str, ...]
    states: tuple[str, ...]


def purge(
    root: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    stale_after: float = 30.0,
    grace: float = 300.0,
    options: SpoolOptions | None = None,
) -> PurgeReport:
    """Put right what the dead have left in the spool `root`.

    A process of this machine is known to be dead at once; for others the records are watched for `stale_after` seconds.
    `grace` is the age in seconds from which a half-written file is nobody's. Raises SpoolUnavailable.
    """
    try:
        return _Purge(Path(root), options or SpoolOptions(), stale_after).run(dry_run=dry_run, grace=grace)
    except OSError as error:
        raise SpoolUnavailable(f"{root}: {error.strerror}; the spool could not be purged") from error


class _Purge:
    def __init__(self, root: Path, options: SpoolOptions, stale_after: float) -> None:
        self._root, self._options, self._stale_after = root, options, stale_after
        mover = Mover(root, options)
        self._janitor = Janitor(root, stale_after=stale_after, give_back=mover.give_back)

    def run(self, *, dry_run: bool, grace: float) -> PurgeReport:
        sessions = list(self._open_sessions())
        dead = self._dead([*self._consumers(), *sessions])
        consumers = [name for name in dead if name not in sessions]
        abandoned = [name for name in dead if name in sessions]
        claims = [
            f"{CLAIMED}/{consumer}/{name}"
            for consumer in consumers
            for name in files.names_if_any(self._root / CLAIMED / consumer)
            if parse_claim_name(name) is not None
        ]
        temporaries = list(self._temporaries(grace))
        states = list(self._states(grace))
        if not dry_run:
            if consumers:
                self._janitor.take_back_alone(consumers)
            for name in abandoned:
                self._mark_failed(name)
            for name in (*temporaries, *states):
                with contextlib.suppress(OSError):
                    files.unlink(self._root / name)
        return PurgeReport(
            dry_run, tuple(claims), tuple(consumers), tuple(temporaries), tuple(abandoned), tuple(states)
        )

    def _consumers(self) -> list[str]:
        folders = set(files.names_if_any(self._root / CLAIMED))
        records = files.names_if_any(self._root / CONSUMERS)
        folders |= {name.removesuffix(".json") for name in records if name.endswith(".json")}
        return sorted(folders)

    def _open_sessions(self) -> Iterator[str]:
        for _, folder in sorted(ranks_of(self._root)):
            for name in session_names(folder):
                path = f"{folder.name}/{name}"
                if parse_record(self._record(path)).get("state") == "open":
                    yield path

    def _record(self, owner: str) -> bytes:
        if "/" not in owner:
            return self._janitor.record_of(owner)
        with contextlib.suppress(OSError):
            return files.read(self._root / owner)
        return b""

    def _dead(self, owners: list[str]) -> list[str]:
        """Watch until each is known to be alive or dead."""
        observer = Observer(self._stale_after)
        seen = {owner: self._record(owner) for owner in owners}
        dead: list[str] = observer.look(seen.__getitem__, owners)
        undecided = [owner for owner in owners if owner not in dead]
        deadline = time.monotonic() + 2 * self._longest_promise(seen)
        while undecided and time.monotonic() < deadline:
            time.sleep(self._stale_after / _LOOKS)
            now = {owner: self._record(owner) for owner in undecided}
            undecided = [owner for owner in undecided if now[owner] == seen[owner]]
            died = observer.look(now.__getitem__, undecided)
            dead += died
            undecided = [owner for owner in undecided if owner not in died]
        return sorted(dead)

    def _longest_promise(self, records: dict[str, bytes]) -> float:
        promised = [parse_record(content).get("stale_after") for content in records.values()]
        return max([self._stale_after, *(float(value) for value in promised if isinstance(value, (int, float)))])

    def _temporaries(self, grace: float) -> Iterator[str]:
        now = self._storage_time()
        quarantine = self._root / QUARANTINE
        folders = [self._root, self._root / CONSUMERS]
        for base in (self._root, quarantine):
            with contextlib.suppress(FileNotFoundError):
                for _, rank in ranks_of(base):
                    folders += [rank, *(step for _, step in steps_of(rank))]
        for folder in folders:
            for name in files.names_if_any(folder):
                if files.is_temporary(name):
                    with contextlib.suppress(OSError):
                        if now - files.changed(folder / name) >= grace * 1e9:
                            yield (folder / name).relative_to(self._root).as_posix()

    def _states(self, grace: float) -> Iterator[str]:
        """What a receiver keeps of closed sessions, for senders that come back to hear so, once none of their bundles waits."""
        from .lan.landing import shut_states

        now = self._storage_time()
        claimed = {
            found[0].rank
            for consumer in files.names_if_any(self._root / CLAIMED)
            for name in files.names_if_any(self._root / CLAIMED / consumer)
            if (found := parse_claim_name(name)) is not None
        }
        for rank, path in shut_states(self._root):
            waits = rank in claimed or waiting_of(self._root, rank, sizes=False)[0]
            with contextlib.suppress(OSError):
                if not waits and now - files.changed(path) >= grace * 1e9:
                    yield path.relative_to(self._root).as_posix()

    def _storage_time(self) -> int:
        """The time by the storage's own clock, which alone can be compared with the times of files."""
        probe = files.temporary(self._root)
        files.write_new(probe, [], mode=self._options.mode, sync=False)
        try:
            return files.changed(probe)
        finally:
            files.unlink(probe)

    def _mark_failed(self, name: str) -> None:
        record = parse_record(self._record(name))
        if record.get("state") == "open":
            data = json.dumps({**record, "state": "failed"}).encode()
            files.replace_small(self._root / name, data, mode=self._options.mode)

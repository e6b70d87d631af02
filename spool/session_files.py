"""Session files: `rank{R}/session-{id}.json`, replaced atomically, so that no reader sees half a record."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from . import files
from .errors import SpoolFull, SpoolUnavailable
from .interface import STATES, Session, SessionInfo, SessionRecord
from .names import is_session, rank_of, session_tag
from .process import parse_record, this_process

FORMAT = 1
_FIELDS = {field.name for field in fields(SessionRecord)}


class SessionFile(Session):
    """One writer's record in a directory spool.

    `tag` goes into the names of this session's bundles. The first session of a rank has none: every session numbers its calls
    from zero, and names are never used twice. It is in the record, so that a session that is opened again keeps it.
    """

    def __init__(self, folder: Path, info: SessionInfo, mode: int, *, first: bool) -> None:
        if not is_session(info.session):
            raise SpoolUnavailable(f"{info.session!r} is no session name: use letters, digits, '.', '_' and '-'")
        self.info = info
        self._path, self._mode = folder / f"session-{info.session}.json", mode
        self._record = SessionRecord(**asdict(info), heartbeat=time.time())
        own = session_tag(info.session)
        self.tag = "" if first or self._earlier().get("tag", own) != own else own
        self._process = this_process()
        self._write()

    def _earlier(self) -> dict[str, Any]:
        try:
            return parse_record(files.read(self._path))
        except OSError:
            return {}

    def heartbeat(self, counts: Mapping[str, int]) -> None:
        self._update("open", counts)

    def close(self, state: str = "closed", counts: Mapping[str, int] | None = None) -> None:
        self._update(state, self._record.counts if counts is None else counts)

    def _update(self, state: str, counts: Mapping[str, int]) -> None:
        self._record = replace(
            self._record, state=state, counts=dict(counts), beat=self._record.beat + 1, heartbeat=time.time()
        )
        self._write()

    def _write(self) -> None:
        record = {"format": FORMAT, **asdict(self._record), "tag": self.tag, "process": self._process}
        data = json.dumps(record).encode()
        try:
            files.replace_small(self._path, data, mode=self._mode)
        except OSError as error:
            kind = SpoolFull if error.errno in files.FULL else SpoolUnavailable
            raise kind(f"{self._path}: the session record could not be written: {error.strerror}") from error


def read_sessions(root: Path) -> Iterator[SessionRecord]:
    """Every readable session record below a spool's root; a file that is no record of ours is passed over."""
    for folder in sorted(files.names(root)):
        if rank_of(folder) is not None:
            yield from sessions_in(root / folder)


def sessions_in(folder: Path) -> Iterator[SessionRecord]:
    """The readable session records of one rank."""
    for name in session_names(folder):
        with contextlib.suppress(OSError, ValueError, TypeError):
            yield parse_session(files.read(folder / name))


def session_names(folder: Path) -> list[str]:
    """Names of the session records in a rank folder."""
    return sorted(n for n in files.names_if_any(folder) if n.startswith("session-") and n.endswith(".json"))


def parse_session(data: bytes) -> SessionRecord:
    """A record from its JSON; ValueError when it is none, or of a later format."""
    value = json.loads(data)
    if not isinstance(value, dict) or value.get("format") != FORMAT or value.get("state") not in STATES:
        raise ValueError("no session record of format 1")
    record = SessionRecord(**{name: item for name, item in value.items() if name in _FIELDS})
    if type(record.rank) is not int or not isinstance(record.session, str) or not isinstance(record.counts, dict):
        raise ValueError("no session record of format 1")
    return record

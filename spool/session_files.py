"""Session files: `rank{R}/session-{id}.json`, replaced atomically, so that no reader sees half a record."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path

from . import files
from .errors import SpoolFull, SpoolUnavailable
from .interface import STATES, Session, SessionInfo, SessionRecord
from .names import rank_of

FORMAT = 1
_FIELDS = {field.name for field in fields(SessionRecord)}


class SessionFile(Session):
    """One writer's record in a directory spool."""

    def __init__(self, folder: Path, info: SessionInfo, mode: int) -> None:
        self.info = info
        self._path, self._mode = folder / f"session-{info.session}.json", mode
        self._record = SessionRecord(**asdict(info), heartbeat=time.time())
        self._write()

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
        data = json.dumps({"format": FORMAT, **asdict(self._record)}).encode()
        try:
            files.replace_small(self._path, data, mode=self._mode)
        except OSError as error:
            kind = SpoolFull if error.errno in files.FULL else SpoolUnavailable
            raise kind(f"{self._path}: the session record could not be written: {error.strerror}") from error


def read_sessions(root: Path) -> Iterator[SessionRecord]:
    """Every readable session record below a spool's root; a file that is no record of ours is passed over."""
    for folder in _names(root):
        if rank_of(folder) is None:
            continue
        for name in _names(root / folder):
            if name.startswith("session-") and name.endswith(".json"):
                with contextlib.suppress(OSError, ValueError, TypeError):
                    yield parse_record(files.read(root / folder / name))


def parse_record(data: bytes) -> SessionRecord:
    """A record from its JSON; ValueError when it is none, or of a later format."""
    value = json.loads(data)
    if not isinstance(value, dict) or value.get("format") != FORMAT or value.get("state") not in STATES:
        raise ValueError("no session record of format 1")
    record = SessionRecord(**{name: item for name, item in value.items() if name in _FIELDS})
    if type(record.rank) is not int or not isinstance(record.session, str) or not isinstance(record.counts, dict):
        raise ValueError("no session record of format 1")
    return record


def _names(folder: Path) -> list[str]:
    try:
        return sorted(files.names(folder))
    except OSError as error:
        if error.errno in files.GONE:
            return []
        raise

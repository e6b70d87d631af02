"""What a running judging tells its listener."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .rows import Finding
from .summary import SessionState, Summary


@dataclass(frozen=True)
class Started:
    """The results folder is ours and the workers are starting; `found` rows of earlier runs stand in it."""

    spool: str
    out: str
    devices: tuple[str, ...]
    workers: int
    found: int


@dataclass(frozen=True)
class RowWritten:
    """One more row is durable."""

    finding: Finding
    line: bytes

    @property
    def row(self) -> dict[str, Any]:
        """The whole row."""
        parsed: dict[str, Any] = json.loads(self.line)
        return parsed


@dataclass(frozen=True)
class Progress:
    """The state of things, about once a second; `waiting` says what is waited for, if nothing is to be done.

    `seconds_left` is there where the end is known: in a batch, once there is a rate to go by.
    """

    summary: Summary
    ready: int
    in_hand: int
    quarantined: int
    rate: float
    sessions: tuple[SessionState, ...]
    waiting: str
    seconds_left: float | None = None


@dataclass(frozen=True)
class Notice:
    """Something that the user should know; `level` is `info` or `warning`."""

    level: str
    text: str


@dataclass(frozen=True)
class Finished:
    """The end; reports are written."""

    summary: Summary


Event = Started | RowWritten | Progress | Notice | Finished
Listener = Callable[[Event], None]

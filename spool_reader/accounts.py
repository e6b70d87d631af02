"""What training processes say of their calls, kept beside the rows, and held against them: nothing vanishes unseen."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .summary import SessionState, Summary

NAME = "sessions.json"
# As many sessions are told one by one; more are added up.
_SINGLE = 8
_VERSION = 1


def save_accounts(folder: Path, states: Iterable[SessionState]) -> None:
    """Add the sessions to those that a results folder knows; one that it knows already is replaced."""
    known = {(state.session, state.rank): state for state in load_accounts([folder])}
    known.update({(state.session, state.rank): state for state in states})
    if not known:
        return
    text = json.dumps({"v": _VERSION, "sessions": [asdict(state) for _, state in sorted(known.items())]}, indent=1)
    part = folder / f".{NAME}.{os.getpid()}"
    part.write_text(text, encoding="utf-8")
    part.replace(folder / NAME)


def load_accounts(folders: Iterable[Path]) -> list[SessionState]:
    """The sessions of results folders; a file that is missing or damaged tells nothing, the rows are still there."""
    found: dict[tuple[str, int], SessionState] = {}
    for folder in folders:
        try:
            listed = json.loads((folder / NAME).read_text(encoding="utf-8"))["sessions"]
            states = [_state(entry) for entry in listed]
        except (OSError, ValueError, TypeError, KeyError):
            continue
        found.update({(state.session, state.rank): state for state in states})
    return [state for _, state in sorted(found.items(), key=lambda item: (item[0][1], item[0][0]))]


def _state(entry: Any) -> SessionState:
    counts = {str(name): int(count) for name, count in entry["counts"].items()}
    return SessionState(str(entry["session"]), int(entry["rank"]), str(entry["state"]), counts)


def account_lines(summary: Summary) -> list[str]:
    """For each session, or for all together: calls seen, recorded, left out and given up, and rows."""
    told = [state for state in summary.sessions if state.counts]
    if len(told) <= _SINGLE:
        return [_account(f"rank {state.rank}", [state], summary) for state in told]
    ranks = {state.rank for state in told}
    return [_account(f"{len(ranks)} ranks, {len(told)} sessions", told, summary)]


def _account(who: str, states: Sequence[SessionState], summary: Summary) -> str:
    def total(name: str) -> int:
        return sum(state.counts.get(name, 0) for state in states)

    recorded = total("captured") + total("unreplayable")
    rows = sum(summary.session_rows[state.session, state.rank] for state in states)
    text = f"{who}: {total('seen')} calls seen: {recorded} recorded"
    if total("unreplayable"):
        text += f" ({total('unreplayable')} of them cannot be replayed)"
    text += f", {total('filtered')} filtered out, {total('dropped')} dropped; {rows} rows"
    if rows < recorded and all(state.complete for state in states):
        text += f"; {recorded - rows} have no row here: still in the spool, in quarantine, or in another results folder"
    return text

"""Rows of many results folders as one: in execution order, each call once, and what could not be read said in words.

Two folders may hold the same call: a copy of a folder, or a bundle that two readers judged because the first had been taken for
dead. It counts once. Two training runs that were given the same session name are no such copy: their rows are all shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spool import ResultsError

from .results import row_files
from .rows import ROW_VERSION, finding_of
from .selection import Selection

_TOLD = 3


@dataclass(frozen=True, order=True)
class _Entry:
    """Where a row stands; in execution order."""

    step: int
    seq: int
    session: str
    file: int
    offset: int
    length: int = field(compare=False)
    api: str = field(compare=False)
    verdict: str = field(compare=False)


class Merged:
    """The rows of results folders, seen as one.

    Attributes:
        problems: what is wrong with the folders and could not be shown, known after the rows have been read.
        notes: what a reader of the report should know, and nothing is wrong with.
        ranks: those that have a file of rows.
    """

    def __init__(self, folders: Iterable[Path], selection: Selection | None = None) -> None:
        self._selection = selection or Selection()
        self.problems: list[str] = []
        self.notes: list[str] = []
        self._files: dict[int, list[Path]] = {}
        self.folders: list[Path] = []
        for folder in folders:
            self._enter(folder)
        # What reading the rows adds is told anew each time.
        self._fixed = len(self.problems), len(self.notes)

    def _enter(self, folder: Path) -> None:
        if any(folder.samefile(other) for other in self.folders):
            self.notes.append(f"{folder}: given twice, read once")
            return
        self.folders.append(folder)
        try:
            found = row_files(folder)
        except OSError as error:
            self.problems.append(f"{folder}: cannot be read: {error.strerror}; its rows are missing here")
            return
        if not found:
            self.problems.append(
                f"{folder}: holds no results-rank*.jsonl, so it has no rows; CSV files alone are views and are not read "
                "back: give the folder that --out of `watch` or `reprocess` named"
            )
        for rank, path in found:
            self._files.setdefault(rank, []).append(path)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every selected row by rank, step, seq and session; reading again starts from the beginning."""
        if not self.folders:
            raise ResultsError("no results folder is given; name one or more")
        del self.problems[self._fixed[0] :], self.notes[self._fixed[1] :]
        for rank in self.ranks:
            yield from self.rows_of(rank)

    @property
    def ranks(self) -> list[int]:
        return sorted(self._files)

    def rows_of(self, rank: int) -> Iterator[dict[str, Any]]:
        """The selected rows of one rank."""
        return filter(self._selection.holds, self._rank(rank, self._files.get(rank, [])))

    def _rank(self, rank: int, paths: list[Path]) -> Iterator[dict[str, Any]]:
        entries: list[_Entry] = []
        for number, path in enumerate(paths):
            entries += self._index(rank, number, path)
        entries.sort()
        files = [path.open("rb") for path in paths]
        try:
            for entry in self._once(rank, paths, entries):
                files[entry.file].seek(entry.offset)
                row: dict[str, Any] = json.loads(files[entry.file].read(entry.length))
                yield row
        finally:
            for file in files:
                file.close()

    def _index(self, rank: int, number: int, path: Path) -> Iterator[_Entry]:
        """Where each row of a file stands. A last line without its end is being written, or was when its writer died."""
        damaged: list[str] = []
        versions: dict[object, int] = {}
        offset = 0
        with path.open("rb") as lines:
            for count, line in enumerate(lines, 1):
                start, offset = offset, offset + len(line)
                if not line.endswith(b"\n"):
                    continue
                try:
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise ValueError("no object")
                    if row.get("v") != ROW_VERSION:
                        versions[row.get("v")] = versions.get(row.get("v"), 0) + 1
                        continue
                    finding = finding_of(row)
                    if finding.rank != rank:
                        raise ValueError(f"it says rank {finding.rank}")
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                    damaged.append(f"line {count} ({type(error).__name__}: {error})"[:120])
                    continue
                yield _Entry(
                    finding.step, finding.seq, finding.session, number, start, len(line), finding.api, finding.verdict
                )
        for version, lost in versions.items():
            self.problems.append(
                f"{path}: {lost} rows of format {version!r} are not shown; this version reads {ROW_VERSION}: make their report "
                "with the spool-check that wrote them, or a newer one"
            )
        if damaged:
            more = f" and {len(damaged) - _TOLD} more" if len(damaged) > _TOLD else ""
            self.problems.append(
                f"{path}: {len(damaged)} lines are no rows and are not shown: {', '.join(damaged[:_TOLD])}{more}; "
                "was the file edited? Its rows must stay as they were written"
            )

    def _once(self, rank: int, paths: list[Path], entries: list[_Entry]) -> Iterator[_Entry]:
        """Each call once; the same name for another call is told and shown."""
        copies = 0
        clashes: list[str] = []
        changes: list[str] = []
        last: _Entry | None = None
        for entry in entries:
            if last is None or (entry.step, entry.seq, entry.session) != (last.step, last.seq, last.session):
                last = entry
                yield entry
                continue
            sides = (last.api, entry.api) if entry.api != last.api else (last.verdict, entry.verdict)
            said = f"step {entry.step} seq {entry.seq}: {sides[0]} in {paths[last.file]}, {sides[1]} in {paths[entry.file]}"
            if entry.api != last.api:
                clashes.append(said)
                yield entry
                continue
            copies += 1
            if entry.verdict != last.verdict:
                changes.append(said)
        if clashes:
            self.problems.append(
                f"rank {rank}: two runs have the same session name, at {len(clashes)} calls, first {clashes[0]}; all rows "
                "are shown, but which belong together cannot be told: report the runs one by one"
            )
        if changes:
            self.problems.append(
                f"rank {rank}: {len(changes)} calls are judged differently in two folders and the first is shown, such as "
                f"{changes[0]}; report one of the folders alone"
            )
        if copies:
            self.notes.append(f"rank {rank}: {copies} rows stand in two folders and count once")

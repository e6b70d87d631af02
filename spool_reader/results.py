"""The results folder: `results-rank{r}.jsonl` is the truth about what has been judged; everything else is a view of it.

One reader owns a folder at a time, through a lock on a local file. Rows are appended and made durable before the claims
of their bundles are given up. A row that a crash left half written is cut at the next start; its bundle is still in the
spool and is judged again.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from spool import ResultsError

from .rows import Finding, finding_of
from .seen_keys import SeenKeys

# A process may often have no more than 1024 files open.
_OPEN_FILES = 200
_ROWS = re.compile(r"results-rank(\d+)\.jsonl")


class ResultsFolder:
    """A results folder that this process owns until `close`.

    Attributes:
        path: the folder.
        found: how many rows were there at the start; each was told to `on_found`.
        damaged: lines of earlier runs that are no rows.
        resumed: the last owner did not come to its end; this run goes on with its work.
    """

    def __init__(self, path: Path, on_found: Callable[[Finding], None] = lambda finding: None) -> None:
        self.path = path
        self.found = 0
        self.damaged = 0
        self.resumed = False
        self._seen = SeenKeys()
        self._files: dict[int, int] = {}
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(path / ".lock", timeout=0)
            self._lock.acquire()
        except Timeout as exc:
            raise ResultsError(
                f"results folder {path} is in use by {_owner(path)}; give this reader another one with --out"
            ) from exc
        except OSError as exc:
            raise ResultsError(f"results folder {path} cannot be used: {exc.strerror}; choose one with --out") from exc
        try:
            self._enter(on_found)
        except BaseException:
            self.close()
            raise

    def _enter(self, on_found: Callable[[Finding], None]) -> None:
        self.resumed = (self.path / ".owner").exists()
        owner = {"pid": os.getpid(), "host": socket.gethostname()}
        (self.path / ".owner").write_text(json.dumps(owner), encoding="utf-8")
        for _, file in row_files(self.path):
            _cut_torn_line(file)
            for row in _rows_of(file):
                finding = None if row is None else _finding(row)
                if finding is None:
                    self.damaged += 1
                elif self._seen.add(finding.key):
                    self.found += 1
                    on_found(finding)

    def commit(self, rows: Sequence[tuple[Finding, bytes]]) -> list[Finding]:
        """Append the rows whose calls have none yet, and make them durable; returns those that were new."""
        new: list[Finding] = []
        lines: dict[int, list[bytes]] = {}
        for finding, line in rows:
            if self._seen.add(finding.key):
                new.append(finding)
                lines.setdefault(finding.rank, []).append(line)
        try:
            for rank, parts in lines.items():
                file = self._file(rank)
                _write_all(file, b"".join(parts))
                os.fsync(file)
        except OSError as exc:
            raise ResultsError(
                f"results folder {self.path}: {exc.strerror}; the bundles stay claimed and come back to the spool"
            ) from exc
        return new

    def __contains__(self, key: tuple[str, int, int, int]) -> bool:
        return key in self._seen

    def close(self) -> None:
        """Give the folder up."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        self._lock.release()

    def __enter__(self) -> ResultsFolder:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None:
            # What is left behind otherwise tells the next owner that it goes on with an unfinished run.
            (self.path / ".owner").unlink(missing_ok=True)
        self.close()

    def _file(self, rank: int) -> int:
        if rank not in self._files:
            if len(self._files) >= _OPEN_FILES:
                os.close(self._files.pop(next(iter(self._files))))
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._files[rank] = os.open(self.path / f"results-rank{rank}.jsonl", flags, 0o644)
        return self._files[rank]


def read_rows(folders: Iterable[Path | str]) -> Iterator[dict[str, Any]]:
    """Every row of the results folders, by rank and in the order of writing; a line that is no row is passed over."""
    for folder in folders:
        path = Path(folder)
        if not path.is_dir():
            raise ResultsError(f"results folder {path} does not exist")
        for rank, file in row_files(path):
            for row in _rows_of(file):
                finding = None if row is None else _finding(row)
                if row is not None and finding is not None and finding.rank == rank:
                    yield row


def row_files(folder: Path) -> list[tuple[int, Path]]:
    """The files of rows in a folder, with their ranks, in the order of the ranks."""
    return sorted((int(match[1]), path) for path in folder.iterdir() if (match := _ROWS.fullmatch(path.name)))


def _rows_of(file: Path) -> Iterator[dict[str, Any] | None]:
    """The rows of one file; None for a line that is none."""
    with file.open("rb") as lines:
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            yield row if isinstance(row, dict) else None


def _finding(row: dict[str, Any]) -> Finding | None:
    try:
        return finding_of(row)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _cut_torn_line(file: Path) -> None:
    """Cut what follows the last line end: the writer died in the middle of it."""
    with file.open("r+b") as handle:
        end = handle.seek(0, os.SEEK_END)
        keep = end
        while keep > 0:
            start = max(0, keep - 65536)
            handle.seek(start)
            last = handle.read(keep - start).rfind(b"\n")
            if last >= 0:
                keep = start + last + 1
                break
            keep = start
        if keep != end:
            handle.truncate(keep)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _owner(path: Path) -> str:
    try:
        owner = json.loads((path / ".owner").read_text(encoding="utf-8"))
        return f"process {int(owner['pid'])} on {str(owner['host'])[:100]}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"

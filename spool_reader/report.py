"""Reports of results folders, made again from their rows at any time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from spool import ConfigError, ResultsError, SpoolError

from .csv_views import csvs_of
from .junit import write_junit
from .merging import Merged
from .summary import Summary


def csv_files(merged: Merged, out: Path | None, columns: str) -> list[Path]:
    """Write the CSV files of every rank, under the time of now, into `out` or the only folder; returns their paths."""
    out = _folder(merged, out, "one set of CSV files")
    try:
        out.mkdir(parents=True, exist_ok=True)
        return csvs_of(merged.rows(), out, columns=columns, timestamp=time.strftime("%Y%m%d%H%M%S"))
    except OSError as error:
        raise ResultsError(f"{out}: the CSV files cannot be written: {error.strerror}; give another --out") from error


def html_file(merged: Merged, out: Path | None, summary: Summary) -> Path:
    """Write `report.html` into `out` or the only folder; returns its path."""
    # Loaded here: no other report needs what it is made with.
    from .html_report import write_report

    folder = _folder(merged, out, "one HTML report")
    return write_report(merged.rows(), summary, folder, problems=merged.problems, notes=merged.notes)


def junit_file(merged: Merged, out: Path | None, summary: Summary) -> Path:
    """Write `junit.xml` into `out` or the only folder; returns its path."""
    return write_junit(merged.rows(), summary, _folder(merged, out, "one JUnit file"), problems=merged.problems)


def _folder(merged: Merged, out: Path | None, what: str) -> Path:
    if out is not None:
        return out
    if len(merged.folders) > 1:
        raise ConfigError(f"--out is missing: {len(merged.folders)} results folders make {what}; say where")
    return merged.folders[0]


def exit_code(code: int, problems: Sequence[str]) -> int:
    """What a report ends with: its own code, unless that is good and something could not be shown."""
    return SpoolError.exit_code if problems and code == 0 else code

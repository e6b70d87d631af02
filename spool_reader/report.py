"""Reports of results folders, made again from their rows at any time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from spool import ConfigError, ResultsError, SpoolError

from .csv_views import csvs_of
from .merging import Merged


def csv_files(merged: Merged, out: Path | None, columns: str) -> list[Path]:
    """Write the CSV files of every rank, under the time of now, into `out` or the only folder; returns their paths."""
    if out is None:
        if len(merged.folders) > 1:
            raise ConfigError(
                f"--out is missing: {len(merged.folders)} results folders make one set of CSV files; say where"
            )
        out = merged.folders[0]
    try:
        out.mkdir(parents=True, exist_ok=True)
        return csvs_of(merged.rows(), out, columns=columns, timestamp=time.strftime("%Y%m%d%H%M%S"))
    except OSError as error:
        raise ResultsError(f"{out}: the CSV files cannot be written: {error.strerror}; give another --out") from error


def exit_code(code: int, problems: Sequence[str]) -> int:
    """What a report ends with: its own code, unless that is good and something could not be shown."""
    return SpoolError.exit_code if problems and code == 0 else code

"""The four CSV files of every rank, made from the result rows.

`accuracy_checking_{result,details}_{timestamp}_rank{r}.csv` hold the ladder's word and all metrics,
`api_precision_compare_{result,details}_…` the standards' word and their ratios. Columns, order and status words are the
ecosystem's; ours follow. A file is written beside its name and put in place whole, so that a reader never sees half.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from spool import ConfigError

from .csv_columns import CALL, COMPARE_DETAILS, DETAILS, OUTPUT, OVERVIEW, RESULT, Columns, keys, titles
from .csv_records import BLANK, cell, compare_records, detail_records, result_record
from .results import read_rows

LANGUAGES = ("zh", "en")


def write_csvs(results_dir: Path | str, *, columns: str = "zh", timestamp: str) -> list[Path]:
    """Write the files of every rank from the rows of a results folder; returns their paths."""
    folder = Path(results_dir)
    return csvs_of(read_rows([folder]), folder, columns=columns, timestamp=timestamp)


def csvs_of(rows: Iterable[Mapping[str, Any]], folder: Path, *, columns: str, timestamp: str) -> list[Path]:
    """Write the files of every rank from rows that come rank by rank; returns their paths."""
    if columns not in LANGUAGES:
        raise ConfigError(f"columns: {columns!r} is not one of {', '.join(LANGUAGES)}")
    written: list[Path] = []
    # One rank at a time: each has four files, and a process may have a thousand open.
    for rank, of_rank in groupby(rows, key=lambda row: int(row["rank"])):
        files = _RankFiles(folder, timestamp, rank, columns)
        try:
            for row in of_rank:
                files.add(row)
            written += files.finish()
        finally:
            files.discard()
    return written


class CsvFile:
    """One CSV file under a temporary name until `finish`."""

    def __init__(self, path: Path, columns: Columns, language: str, more: Iterable[str] = ()) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.part")
        more = list(more)
        self._keys = [*keys(columns), *more]
        # The ecosystem's tools read and write these files with a byte order mark.
        self._file = self._temporary.open("w", encoding="utf-8-sig", newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerow([*titles(columns, language), *more])

    def add(self, record: Mapping[str, Any]) -> None:
        """Write one record; what it lacks is blank."""
        self._writer.writerow([cell(record.get(key, BLANK)) for key in self._keys])

    def finish(self) -> Path:
        """Put the file in place."""
        self._file.close()
        os.replace(self._temporary, self._path)
        return self._path

    def discard(self) -> None:
        """Remove what has not been put in place."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)


class _RankFiles:
    def __init__(self, folder: Path, timestamp: str, rank: int, language: str) -> None:
        def file(kind: str, columns: Columns, more: Iterable[str] = ()) -> CsvFile:
            return CsvFile(folder / f"{kind}_{timestamp}_rank{rank}.csv", columns, language, more)

        self._result = file("accuracy_checking_result", (*RESULT, *CALL))
        self._details = file("accuracy_checking_details", (*DETAILS, *OUTPUT), OVERVIEW)
        self._compare_result = file("api_precision_compare_result", (*RESULT, *CALL))
        self._compare_details = file("api_precision_compare_details", (*COMPARE_DETAILS, *OUTPUT))
        self._all = (self._result, self._details, self._compare_result, self._compare_details)

    def add(self, row: Mapping[str, Any]) -> None:
        self._result.add(result_record(row, "status"))
        self._compare_result.add(result_record(row, "standard_status"))
        for record in detail_records(row):
            self._details.add(record)
        for record in compare_records(row):
            self._compare_details.add(record)

    def finish(self) -> list[Path]:
        return [file.finish() for file in self._all]

    def discard(self) -> None:
        for file in self._all:
            file.discard()

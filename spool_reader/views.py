"""The CSV files made again from the rows, now and then while running and once at the end; then the HTML page, too."""

from __future__ import annotations

import time
from pathlib import Path

from spool import SpoolCheckError

from .events import Listener, Notice
from .summary import Summary

_SECONDS = 30.0
# Making the files reads every row: as the folder grows they are made less often, at most a twentieth of the time.
_SHARE = 20.0


class Views:
    """Keeps one set of CSV files of a results folder fresh."""

    def __init__(self, folder: Path, columns: str) -> None:
        self._folder = folder
        self._columns = columns
        self._timestamp = time.strftime("%Y%m%d%H%M%S")
        self._next = time.monotonic() + _SECONDS

    def refresh(self) -> None:
        """Make the files again if it is time."""
        if time.monotonic() >= self._next:
            self.write()

    def write(self) -> list[str]:
        """Make the files again; returns their paths."""
        # Loaded here: a worker or a look at a bundle needs no tables.
        from .csv_views import write_csvs

        start = time.monotonic()
        paths = write_csvs(self._folder, columns=self._columns, timestamp=self._timestamp)
        end = time.monotonic()
        self._next = end + max(_SECONDS, _SHARE * (end - start))
        return [str(path) for path in paths]

    def write_page(self, summary: Summary, emit: Listener) -> list[str]:
        """Write `report.html` where what it takes is installed; returns its path. The verdict never fails for want of it."""
        from .html_report import has_extra
        from .merging import Merged
        from .report import html_file

        if not has_extra():
            return []
        try:
            return [str(html_file(Merged([self._folder]), None, summary))]
        except (SpoolCheckError, OSError) as error:
            emit(Notice("warning", f"the HTML report was not written: {error}"))
            return []

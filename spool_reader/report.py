"""Views of results folders that can be made again at any time."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from .csv_views import write_csvs


def csv_files(folders: Iterable[Path], columns: str) -> list[Path]:
    """Write the CSV files of each folder anew, under the time of now; returns their paths."""
    timestamp = time.strftime("%Y%m%d%H%M%S")
    return [path for folder in folders for path in write_csvs(folder, columns=columns, timestamp=timestamp)]

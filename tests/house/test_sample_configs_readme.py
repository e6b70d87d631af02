"""The page beside the sample configurations names every key that the code accepts, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from spool_reader import config as judging
from spool_writer import config as training

PAGE = (Path(__file__).resolve().parents[2] / "sample_configs" / "README.md").read_text(encoding="utf-8")


def named() -> set[str]:
    """Keys in the first column of the tables."""
    cells = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    found = {name.rpartition(".")[2] for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}
    return {name for name in found if name != "json"}


def test_every_key_is_explained_and_every_explained_key_exists() -> None:
    tables = (
        training._TOP_KEYS,
        training._TENSOR_KEYS,
        training._SPOOL_KEYS,
        judging._TOP_KEYS,
        judging._RUN_UT_KEYS,
        judging._READER_KEYS,
    )
    keys = {key for table in tables for key in table} - {"tensor", "run_ut", "spool"}
    assert named() == keys

"""The reference pages that are made from the code are current, and every key is explained."""

from __future__ import annotations

import subprocess
import sys

import pytest
from processes import ROOT, environment

from spool.config_schema import Key
from spool.option_keys import OPTION_KEYS
from spool_reader import config as judging
from spool_reader import known
from spool_writer import config as training


def test_the_pages_are_current() -> None:
    command = [sys.executable, str(ROOT / "docs" / "make_reference.py"), "--check"]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr


TABLES = {
    "training, top": training._TOP_KEYS,
    "training, tensor": training._TENSOR_KEYS,
    "training, spool": training._SPOOL_KEYS,
    "judging, top": judging._TOP_KEYS,
    "judging, run_ut": judging._RUN_UT_KEYS,
    "judging, spool": {**OPTION_KEYS, **judging._READER_KEYS},
    "known differences": known._KEYS,
}


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_key_is_explained(name: str) -> None:
    keys: dict[str, Key] = dict(TABLES[name])
    assert keys
    assert all(len(key.help) > 5 and key.rule for key in keys.values())

"""Every command and snippet of the README is run, in order, as a reader of it would."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hand_made_dumps import DumpMaker, X
from pages import blocks_of, dead_links, follow
from processes import ROOT, free_port, left_in, rows_of

PAGE = ROOT / "README.md"
README = PAGE.read_text(encoding="utf-8")


def test_the_readme_has_no_kind_of_block_that_is_not_run() -> None:
    assert {block.language for block in blocks_of(README)} <= {"bash", "python", "json"}
    assert {block.how for block in blocks_of(README)} <= {"run", "background"}


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make ([\w-]+)", README))))
def test_make_targets_exist(target: str) -> None:
    assert subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True).returncode == 0


def test_links_lead_somewhere() -> None:
    assert not dead_links(PAGE)


def test_commands_and_snippets_run_in_order(tmp_path: Path) -> None:
    """One shared directory and one working folder for all, as for a user who follows the page from the top."""
    spool = tmp_path / "shared"
    for config in (ROOT / "sample_configs").glob("*.json"):
        text = config.read_text(encoding="utf-8").replace("/nfs/xxx/data", str(spool))
        (tmp_path / config.name).write_text(text, encoding="utf-8")
    dump = DumpMaker(tmp_path / "old-dump")
    dump.call("Torch.add.0", (X, X), {}, X + X)
    dump.write()
    follow(blocks_of(README), tmp_path, {"/nfs/xxx/data": str(spool), ":59208": f":{free_port()}"})
    assert rows_of(tmp_path / "results")
    assert rows_of(tmp_path / "lan-results")
    assert rows_of(tmp_path / "results-dump")
    assert left_in(spool) == []

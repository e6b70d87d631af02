"""The pages that teach: commands are run, shown output is real, links lead somewhere, both READMEs agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import blocks_of, dead_links, follow
from processes import ROOT, rows_of


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert not dead_links(page)


def test_the_chinese_readme_has_the_same_blocks() -> None:
    english, chinese = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md"))
    assert blocks_of(chinese) == blocks_of(english)
    assert not dead_links(ROOT / "README.zh.md")


def test_the_tutorial_finds_both_faults(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    follow(blocks_of(page), tmp_path, {})
    rows = rows_of(tmp_path / "results")
    errors = {(row["rank"], row["step"], row["api"]) for row in rows if row["verdict"] == "error"}
    bad = ("Functional.layer_norm.0", "Functional.layer_norm.1", "Aten.gelu_backward.0", "Aten.gelu_backward.1")
    assert errors == {(1, step, api) for step in (2, 3) for api in bad}

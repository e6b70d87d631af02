"""docs/fused_ops.md is what the registry says, and its example works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fused_ops
from fused_ops import registry
from fused_ops.document import document

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "fused_ops.md"


def test_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == document(), "run: python -m fused_ops.document > docs/fused_ops.md"


def test_module_prints_the_page() -> None:
    command = [sys.executable, "-W", "error", "-m", "fused_ops.document"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True)
    assert done.stdout == document()
    assert done.stderr == ""


@pytest.mark.parametrize("name", fused_ops.names())
def test_every_operator_is_documented_in_words(name: str) -> None:
    op = fused_ops.reference(name)
    entry = re.search(rf"^### {re.escape(name)}\n(.*?)(?=^### |\Z)", document(), re.M | re.S)
    assert entry is not None
    assert op.schema in entry[1]
    assert op.source in entry[1]
    # What is not compared, where it depends on the call, must be said in words.
    assert not callable(op.undefined) or op.uncompared_note in entry[1] != ""


def test_example_of_an_own_reference_works() -> None:
    example = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert example is not None
    exec(compile(example[1], str(PAGE), "exec"), {})
    try:
        assert torch.equal(fused_ops.reference("npu_twice")(torch.ones(2)), torch.full((2,), 2.0))
    finally:
        registry._TABLE.pop("npu_twice")


def test_import_is_light() -> None:
    """The package needs torch alone: neither numpy-heavy extras nor any other package of the project."""
    code = "import sys, fused_ops; print(sorted({m.split('.')[0] for m in sys.modules} & {'pandas', 'click', 'spool'}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

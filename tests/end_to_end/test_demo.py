"""The demo checks itself; here its faults are changed under it, so that its check is checked too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from processes import ROOT, left_in, rows_of


@pytest.mark.parametrize("fault", ["layer_norm", "gelu", "softmax"])
def test_the_planted_operator_is_named_and_no_other(fault: str, tmp_path: Path, cli: Any) -> None:
    run = cli("demo", "--dir", tmp_path / "demo", "--fault", fault, "--steps", 2)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"FOUND: the operator at fault is {fault}\n" in run.stdout
    errors = [row for row in rows_of(tmp_path / "demo" / "results") if row["verdict"] == "error"]
    assert {row["api"].rpartition(".")[0] for row in errors} == {f"Functional.{fault}"}
    assert left_in(tmp_path / "demo" / "spool") == []


def test_the_reproduce_command_gives_the_verdict_again(tmp_path: Path, cli: Any) -> None:
    run = cli("demo", "--dir", tmp_path / "demo", "--steps", 1)
    [path] = re.findall(r"spool-check replay (\S+)", run.stdout)
    again = cli("replay", path)
    assert again.returncode == 1, again.stderr
    assert "ERROR Functional.layer_norm.0" in again.stdout
    assert "limit" in again.stdout


def test_a_healthy_device_is_not_blamed(tmp_path: Path, cli: Any) -> None:
    run = cli("demo", "--dir", tmp_path / "demo", "--fault", "none", "--steps", 2)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "FOUND: no operator is at fault" in run.stdout


def test_a_second_demo_in_one_folder_is_refused(tmp_path: Path, cli: Any) -> None:
    (tmp_path / "demo" / "spool").mkdir(parents=True)
    run = cli("demo", "--dir", tmp_path / "demo")
    assert run.returncode == 3
    assert "--dir" in run.stderr


def test_the_demo_fails_when_something_else_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Any) -> None:
    """A training that plants another fault than it was told makes the demo fail."""
    for name in ("spool_check", "spool_writer", "spool_reader", "spool", "comparators", "fused_ops", "cli.py"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "spool_check").unlink()
    face = tmp_path / "spool_check"
    face.mkdir()
    for source in (ROOT / "spool_check").glob("*.py"):
        text = source.read_text(encoding="utf-8").replace('"layer_norm": (F.layer_norm,', '"layer_norm": (F.gelu,')
        text = text.replace('"gelu": (F.gelu, _gelu_wrong_form)', '"gelu": (F.layer_norm, _layer_norm_wrong_eps)')
        text = text.replace("(F.gelu, _layer_norm_wrong_eps)", "(F.gelu, _gelu_wrong_form)")
        (face / source.name).write_text(text, encoding="utf-8")
    monkeypatch.setattr("processes.ROOT", tmp_path)
    run = cli("demo", "--dir", tmp_path / "demo", "--steps", 1)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "PROBLEM: operators at fault: gelu; planted: layer_norm" in run.stdout

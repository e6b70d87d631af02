"""The command line beside judging: help, version, standards, compare, purge, report."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from processes import ROOT, environment

from cli import main

COMMANDS = "watch reprocess import run-ut replay inspect status purge report compare standards certs demo".split()


def run(*words: Any) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_help_names_every_command() -> None:
    shown = run("--help").output
    assert all(f"  {name} " in shown for name in COMMANDS)
    assert "5 nothing was" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_every_option_explained(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    options = [parameter for parameter in main.commands[command].params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("words", [["--help"], ["watch", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\nfrom cli import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numpy', 'pandas', 'watchdog', 'safetensors'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


STANDARDS = {
    "mul": "absolute threshold",
    "Tensor.mul.3": "absolute threshold",
    "relu": "binary consistency",
    "matmul": "ULP",
    "conv2d": "thousandth",
    "softmax": "benchmark",
    "linalg.norm": "benchmark",
    "NPU.npu_rms_norm.0": "benchmark",
}


@pytest.mark.parametrize("api", sorted(STANDARDS))
def test_standards(api: str) -> None:
    result = run("standards", api, "--json")
    assert result.exit_code == 0, result.output
    [entry] = [json.loads(line) for line in result.stdout.splitlines()]
    assert entry["standard"] == STANDARDS[api]
    assert entry["limits"]


def test_standards_shows_a_fused_operator_s_signature() -> None:
    assert "npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06)" in run("standards", "npu_rms_norm").output


def test_standards_of_an_unknown_api_names_the_nearest() -> None:
    result = run("standards", "matmull")
    assert result.exit_code == 2
    assert 'did you mean "matmul"' in result.output


def test_every_standard_is_listed_without_an_api() -> None:
    assert len(run("standards", "--json").stdout.splitlines()) == 6


def test_report_makes_the_views_again(tmp_path: Path) -> None:
    row = {
        "v": 1, "session": "s", "rank": 0, "step": 0, "seq": 0, "api": "Tensor.mul.0", "phase": "forward", "origin": None,
        "verdict": "error", "standard": "absolute threshold", "message": "max \u001b[31mred", "outputs": [],
        "mode": "two-way", "device": "cpu", "timings": {},
    }  # fmt: skip
    (tmp_path / "results-rank0.jsonl").write_text(json.dumps(row) + "\n" + '{"v": 1, "cut', encoding="utf-8")
    text = run("report", tmp_path)
    assert text.exit_code == 1
    assert "RESULT FAIL: 1 error" in text.output
    assert "\u001b" not in text.output
    assert json.loads(run("report", tmp_path, "--format", "json").stdout)["summary"]["verdicts"] == {"error": 1}
    assert run("report", tmp_path, "--format", "csv").exit_code == 1
    assert len(list(tmp_path.glob("*_rank0.csv"))) == 4


def test_report_of_an_empty_folder_has_checked_nothing(tmp_path: Path) -> None:
    assert run("report", tmp_path).exit_code == 5


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "npu.csv"), ("API Name,Shape\nx,y\n", "npu.csv"), (None, "npu.csv")],
    ids=["empty", "columns missing", "file missing"],
)
def test_compare_refuses_what_is_no_details_file(text: str | None, told: str, tmp_path: Path) -> None:
    for name in ("npu.csv", "gpu.csv"):
        if text is not None:
            (tmp_path / name).write_text(text, encoding="utf-8")
    result = run("compare", tmp_path / "npu.csv", tmp_path / "gpu.csv", "--out", tmp_path)
    assert result.exit_code in (2, 3), result.output
    assert told in result.output


def test_purge_of_a_clean_spool_does_nothing(tmp_path: Path) -> None:
    result = run("purge", tmp_path, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["claims"] == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion(shell: str) -> None:
    def ask(instruction: str, **more: str) -> str:
        env = {**environment(), "_SPOOL_CHECK_COMPLETE": f"{shell}_{instruction}", **more}
        program = "import sys; sys.argv = ['spool-check']; import cli; cli.main(prog_name='spool-check')"
        run = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stderr
        return run.stdout

    assert "spool-check" in ask("source")
    found = ask("complete", COMP_WORDS="spool-check re", COMP_CWORD="re" if shell == "fish" else "1")
    assert {"replay", "report", "reprocess"} <= set(re.findall(r"\w+", found))

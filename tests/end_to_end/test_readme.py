"""Every command and snippet of the README is run, in order, as a reader of it would."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hand_made_dumps import DumpMaker, X
from processes import ROOT, environment, free_port, left_in, rows_of

README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"(?:<!-- test: (?P<how>[\w-]+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)
# What sets up an environment or runs this very suite is held by other means, not from inside the suite.
SET_UP = ("make demo", "make test", "pip install")


def blocks() -> list[tuple[str, str, str]]:
    return [(match["language"], match["text"], match["how"] or "run") for match in FENCE.finditer(README)]


def test_the_readme_has_no_kind_of_block_that_is_not_run() -> None:
    assert {language for language, _, _ in blocks()} <= {"bash", "python", "json"}
    assert {how for _, _, how in blocks()} <= {"run", "background"}


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make ([\w-]+)", README))))
def test_make_targets_exist(target: str) -> None:
    assert subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True).returncode == 0


def test_links_lead_somewhere() -> None:
    missing = [link for link in re.findall(r"\]\((?!http)([^)#]+)", README) if not (ROOT / link).exists()]
    assert not missing


def test_commands_and_snippets_run_in_order(tmp_path: Path) -> None:
    """One shared directory and one working folder for all, as for a user who follows the page from the top."""
    spool = tmp_path / "shared"
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    command = bin_folder / "spool-check"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m spool_check "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    env = {**environment(), "PATH": f"{bin_folder}:{Path(sys.executable).parent}:/usr/bin:/bin"}
    for config in (ROOT / "sample_configs").glob("*.json"):
        text = config.read_text(encoding="utf-8").replace("/nfs/xxx/data", str(spool))
        (tmp_path / config.name).write_text(text, encoding="utf-8")

    dump = DumpMaker(tmp_path / "old-dump")
    dump.call("Torch.add.0", (X, X), {}, X + X)
    dump.write()
    port = free_port()
    waiting: list[subprocess.Popen[str]] = []
    try:
        for number, (language, text, how) in enumerate(blocks()):
            if language == "json" or any(line.startswith(SET_UP) for line in text.splitlines()):
                continue
            text = text.replace("/nfs/xxx/data", str(spool)).replace(":59208", f":{port}")
            if language == "python":
                path = tmp_path / f"snippet{number}.py"
                path.write_text(text, encoding="utf-8")
                words = [sys.executable, str(path)]
            else:
                words = [shutil.which("bash") or "sh", "-ec", text]
            if how == "background":
                waiting.append(
                    subprocess.Popen(
                        words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                    )
                )
                continue
            run = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
            # 5: nothing was left to check, which is the good end of `reprocess` on an empty spool.
            assert run.returncode in (0, 5), f"{text}\n{run.stdout}{run.stderr}"
            if language == "python":
                while waiting:
                    process = waiting.pop()
                    output, _ = process.communicate(timeout=120)
                    assert process.returncode == 0, output
    finally:
        for process in waiting:
            process.kill()
            process.communicate()
    assert not waiting
    assert rows_of(tmp_path / "results")
    assert rows_of(tmp_path / "lan-results")
    assert rows_of(tmp_path / "results-dump")
    assert left_in(spool) == []

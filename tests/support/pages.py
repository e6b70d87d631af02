"""Pages of the documentation followed as a reader would: each block is run in order and shown output is compared.

A line `<!-- test: … -->` above a block says what is special about it: `background` (it runs on until a later Python
block has ended), `file NAME` (it is written, not run), `exits N` (its exit code). A block of `text` is the output of the
block before it: its lines occur there; `…` ends a line that is cut short.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from processes import environment

_FENCE = re.compile(r"(?:<!-- test: (?P<how>[\w. -]+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)
# What sets up an environment or runs this very suite is held by other means, not from inside the suite.
_SET_UP = ("make demo", "make test", "pip install")
# What differs from run to run and from processor to processor; counts, ranks, steps and limits do not.
_VARIES = re.compile(r"\d{14}-\d+-[0-9a-f]{8}|\d{14}|-?\d+\.\d+(e[+-]\d+)?x?|-?\d+e[+-]\d+x?|\d+x\b|\d+ s\b")
# 5: nothing was left to check, which is the good end of `reprocess` on an empty spool.
_GOOD = (0, 5)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    how: str

    @property
    def sets_up(self) -> bool:
        return any(line.startswith(_SET_UP) for line in self.text.splitlines())


def blocks_of(page: str) -> list[Block]:
    return [Block(match["language"], match["text"], match["how"] or "run") for match in _FENCE.finditer(page)]


def dead_links(path: Path) -> list[str]:
    """Links of a page that lead to no file."""
    links = re.findall(r"\]\((?!http)([^)#]+)", path.read_text(encoding="utf-8"))
    return [link for link in links if not (path.parent / link).exists()]


def follow(blocks: list[Block], folder: Path, replaced: dict[str, str]) -> None:
    """Run the blocks in `folder`, each key of `replaced` in them standing for its value."""
    env = _environment(folder)
    waiting: list[subprocess.Popen[str]] = []
    output = ""
    try:
        for number, block in enumerate(blocks):
            text = block.text
            for old, new in replaced.items():
                text = text.replace(old, new)
            if block.language == "text":
                _compare(text, output)
            elif block.how.startswith("file "):
                (folder / block.how.removeprefix("file ")).write_text(text, encoding="utf-8")
            elif block.language == "json" or block.sets_up:
                continue
            elif block.how == "background":
                waiting.append(
                    subprocess.Popen(
                        _words(block, text, folder, number),
                        cwd=folder,
                        env=env,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        text=True,
                    )
                )
            else:
                words = _words(block, text, folder, number)
                run = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
                good = (int(block.how.removeprefix("exits ")),) if block.how.startswith("exits ") else _GOOD
                assert run.returncode in good, f"{text}\n{run.returncode}\n{run.stdout}{run.stderr}"
                output = run.stdout + run.stderr
                while waiting and block.language == "python":
                    process = waiting.pop()
                    said, _ = process.communicate(timeout=120)
                    assert process.returncode == 0, said
    finally:
        for process in waiting:
            process.kill()
            process.communicate()
    assert not waiting


def _environment(folder: Path) -> dict[str, str]:
    """`spool-check` and `python` are those of this interpreter, whether the package is installed or not."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    command = bin_folder / "spool-check"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m spool_check "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return {**environment(), "PATH": f"{bin_folder}:{Path(sys.executable).parent}:/usr/bin:/bin"}


def _words(block: Block, text: str, folder: Path, number: int) -> list[str]:
    if block.language == "bash":
        return [shutil.which("bash") or "sh", "-ec", text]
    path = folder / f"snippet{number}.py"
    path.write_text(text, encoding="utf-8")
    return [sys.executable, str(path)]


def _compare(shown: str, output: str) -> None:
    lines = [_plain(line) for line in output.splitlines()]
    for line in shown.splitlines():
        wanted = _plain(line.removesuffix("…"))
        cut = line.endswith("…")
        found = any(said.startswith(wanted) if cut else said == wanted for said in lines)
        assert found, f"not in the output: {line}\n{output}"


def _plain(line: str) -> str:
    return " ".join(_VARIES.sub("#", line).split())

"""The command line and training scripts as real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import environment


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`cli("watch", dir, …)` runs the command line to its end, in `tmp_path`."""

    def run(*words: Any, timeout: float = 180, **extra: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "spool_check", *map(str, words)]
        return subprocess.run(
            command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=timeout, **extra
        )

    return run


@pytest.fixture
def start_cli(tmp_path: Path) -> Any:
    """`start_cli("watch", dir, …)` starts the command line; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "spool_check", *map(str, words)]
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`script(text, *arguments)` runs a Python program in a process of its own."""

    def run(text: str, *words: Any, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "training_script.py"
        path.write_text(text, encoding="utf-8")
        command = [sys.executable, str(path), *map(str, words)]
        return subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=timeout)

    return run

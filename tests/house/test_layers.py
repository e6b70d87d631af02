"""Imports run one way, and a training process stays light: each checked in a fresh interpreter."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = {"spool_check", "spool", "spool_writer", "spool_reader", "comparators", "fused_ops", "cli"}
MAY_IMPORT = {
    "spool": set(),
    "comparators": set(),
    "fused_ops": set(),
    "spool_writer": {"spool"},
    "spool_reader": {"spool", "comparators", "fused_ops"},
    # __main__ starts the command line; it is the one file of the face that may.
    "spool_check": {"spool_writer", "spool"},
    "cli": {"spool_reader", "spool", "comparators", "fused_ops"},
}
EXCEPTIONS = {("spool_check/__main__.py", "cli")}


def imported(path: Path) -> set[str]:
    """Top-level names of our packages that a file imports, at any depth of the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found & OURS


def files_of(package: str) -> list[Path]:
    return [ROOT / "cli.py"] if package == "cli" else sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_imports_run_one_way(package: str) -> None:
    files = files_of(package)
    assert files, f"{package} has no files"
    wrong = []
    for path in files:
        place = path.relative_to(ROOT).as_posix()
        for name in imported(path) - {package} - MAY_IMPORT[package]:
            if (place, name) not in EXCEPTIONS:
                wrong.append(f"{place} imports {name}")
    assert not wrong, "\n".join(wrong)


LIGHT = {
    "spool_check": ["pandas", "click", "watchdog", "filelock", "spool_reader", "comparators", "fused_ops", "cli"],
    "spool": ["pandas", "click", "watchdog", "filelock", "spool_writer", "spool_reader", "comparators", "fused_ops"],
    "comparators": ["pandas", "click", "watchdog", "filelock", "spool", "spool_writer", "spool_reader", "fused_ops"],
    "fused_ops": ["pandas", "click", "watchdog", "filelock", "spool", "spool_writer", "spool_reader", "comparators"],
    "cli": ["torch", "numpy", "pandas", "watchdog", "spool_writer"],
}


@pytest.mark.parametrize("module", sorted(LIGHT))
def test_import_is_light(module: str) -> None:
    """What `import module` must not load. torch itself may load filelock, so only what torch does not load counts."""
    code = (
        "import sys, importlib\n"
        f"if {module!r} != 'cli':\n    import torch, numpy, safetensors.torch\n"
        "before = set(sys.modules)\n"
        f"importlib.import_module({module!r})\n"
        f"print(' '.join(sorted((set(sys.modules) - before) & set({LIGHT[module]!r}))))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_the_debugger_is_reachable_from_the_face() -> None:
    code = "from spool_check import PrecisionDebugger, __version__; print(PrecisionDebugger.__module__, __version__)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    module, version = run.stdout.split()
    assert module.startswith("spool_writer")
    assert version.count(".") == 2

"""Writes the reference pages that are made from the code: docs/cli.md from the commands, docs/configuration.md from the tables.

python docs/make_reference.py [--check]: with --check nothing is written, and pages that are not current are an error.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from spool.config_schema import Key
from spool.option_keys import OPTION_KEYS
from spool_reader import config as judging
from spool_reader import known
from spool_writer import config as training

DOCS = Path(__file__).resolve().parent


def cell(text: str) -> str:
    """Text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def default_of(key: Key) -> str:
    """The default as it would stand in the file."""
    if key.required:
        return "required"
    if key.default is None or key.default in ((), "", {}, -1):
        return ""
    value = list(key.default) if isinstance(key.default, tuple) else key.default
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def table(keys: Mapping[str, Key], prefix: str = "") -> Iterator[str]:
    """One row a key."""
    yield "| key | meaning | value | default |"
    yield "|---|---|---|---|"
    for name, key in keys.items():
        yield f"| `{prefix}{name}` | {cell(key.help)} | {cell(key.rule)} | {default_of(key)} |"


def configuration() -> str:
    """docs/configuration.md."""
    own = {name: key for name, key in training._SPOOL_KEYS.items() if name not in OPTION_KEYS}
    parts = [
        ("Training side", 'The file of `PrecisionDebugger("npu.json")`.', table(training._TOP_KEYS)),
        ("The object `tensor`", "Of the training side.", table(training._TENSOR_KEYS, "tensor.")),
        ("Judging side", "The file of `spool-check run-ut -config gpu.json`.", table(judging._TOP_KEYS)),
        ("The object `run_ut`", "Of the judging side.", table(judging._RUN_UT_KEYS, "run_ut.")),
        ("The object `spool`, both sides", "What is only ours, about the spool itself.", table(OPTION_KEYS, "spool.")),
        ("The object `spool`, training side", "Keywords of `PrecisionDebugger(spool=…)` too.", table(own, "spool.")),
        (
            "The object `spool`, judging side",
            "Options of `spool-check watch` by the same names; one that is given on the command line wins.",
            table(judging._READER_KEYS, "spool."),
        ),
        ("A list of known differences", "The file of `--known`; one object an entry.", table(known._KEYS)),
    ]
    lines = ["# Configuration", "", inspect.cleandoc(_ABOUT_CONFIGURATION), ""]
    for title, about, rows in parts:
        lines += [f"## {title}", "", about, "", *rows, ""]
    return "\n".join(lines)


_ABOUT_CONFIGURATION = """
    Made from the tables that check the files (`make docs`). Keys outside the object `spool` are those of msprobe's online
    pre-check, with its defaults. An unknown key is an error that names the nearest known one. There is a pair of files for
    each way of transport in [sample_configs](../sample_configs/README.md).
"""


def options_of(command: click.Command) -> Iterator[str]:
    """One row an option or argument."""
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    if not shown:
        return
    yield "| | |"
    yield "|---|---|"
    context = click.Context(command, info_name=command.name)
    for parameter in shown:
        if isinstance(parameter, click.Option):
            record = parameter.get_help_record(context)
            if record is not None:
                yield f"| `{cell(record[0])}` | {cell(record[1])} |"
        else:
            yield f"| `{parameter.make_metavar(context)}` | argument{'' if parameter.required else ', may be left out'} |"


def commands(group: click.Group, words: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command with its words, depth first."""
    for name, command in group.commands.items():
        full = f"{words} {name}".strip()
        if isinstance(command, click.Group):
            yield from commands(command, full)
        else:
            yield full, command


def command_line() -> str:
    """docs/cli.md."""
    from cli import main

    lines = [
        "# Command line",
        "",
        "Made from the commands (`make docs`). `spool-check COMMAND --help` says the same.",
        "",
    ]
    lines += [inspect.cleandoc(main.help or ""), ""]
    for words, command in commands(main):
        context = click.Context(command, info_name=f"spool-check {words}")
        usage = " ".join(command.collect_usage_pieces(context))
        lines += [
            f"## {words}",
            "",
            "```",
            f"spool-check {words} {usage}",
            "```",
            "",
            inspect.cleandoc(command.help or ""),
            "",
        ]
        lines += [*options_of(command), ""]
    return "\n".join(lines)


PAGES: dict[str, Any] = {"configuration.md": configuration, "cli.md": command_line}


def main(check: bool) -> int:
    """Write the pages, or compare them with what would be written."""
    stale = [name for name, make in PAGES.items() if not check or _old(name) != make()]
    if check:
        print("".join(f"docs/{name} is not current: run `make docs`\n" for name in stale), end="")
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).write_text(PAGES[name](), encoding="utf-8")
    return 0


def _old(name: str) -> str:
    path = DOCS / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.path.insert(0, str(DOCS.parent))
    sys.exit(main("--check" in sys.argv[1:]))

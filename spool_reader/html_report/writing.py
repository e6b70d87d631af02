"""From rows to the file: what the page shows is collected in one reading, then put into the template with all it needs.

The page asks the network for nothing, and its Content-Security-Policy forbids it: scripts run only if their hash is named
there, so that even a text which slipped through the escaping could do nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from spool import ResultsError
from spool.version import __version__

from ..rows import finding_of
from ..summary import Summary
from .calls import Calls
from .details import Details
from .extra import need_extra, plotting_script
from .overview import Operators, overview
from .packing import pack, script_hash

FILE_NAME = "report.html"
# So many calls are listed one by one; more make the page slow.
LISTED = 400_000
_ASSETS = Path(__file__).with_name("assets")
# In this order: each uses what stands before it.
_SCRIPTS = ("core.js", "state.js", "heatmap.js", "charts.js", "detail.js", "table.js", "main.js")


def write_report(
    rows: Iterable[Mapping[str, Any]],
    summary: Summary,
    folder: Path,
    *,
    problems: list[str] | None = None,
    notes: list[str] | None = None,
    listed: int = LISTED,
) -> Path:
    """Write `report.html` of the rows into `folder`; returns its path.

    `problems` and `notes` are read after the rows: reading them may add some.
    """
    need_extra()
    calls, details, operators = Calls(), Details(), Operators()
    for row in rows:
        finding = finding_of(row)
        details.add(len(calls), finding, row)
        calls.add(finding, row)
        operators.add(finding)
    page = _page(calls, details, listed, overview(summary, operators, problems or (), notes or ()))
    path = folder / FILE_NAME
    part = folder / f".{FILE_NAME}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_text(page, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise ResultsError(f"{path}: the report cannot be written: {error.strerror}; give another --out") from error
    return path


def _page(calls: Calls, details: Details, listed: int, shown: Mapping[str, Any]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    kept = calls.kept(listed)
    opening, pieces = details.packed(kept)
    data = {**calls.to_json(kept), "opening": opening, "piece": details.piece}
    script = "\n".join((_ASSETS / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    plotting = plotting_script()
    environment = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        **shown,
        version=__version__,
        made=time.strftime("%Y-%m-%d %H:%M"),
        total=len(calls),
        listed=len(kept),
        failing=details.failing,
        opening=len(opening),
        style=(_ASSETS / "report.css").read_text(encoding="utf-8"),
        script=script,
        hashes=f"{script_hash(script)} {script_hash(plotting)}",
        plotting=pack(plotting.encode("utf-8")),
        data=pack(json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii")),
        pieces=pieces,
    )

"""The whole tool on one machine: a training with a planted fault, watched, judged, and the fault named.

The demo checks itself. It is good only if every recorded call got one row, the spool is empty, nothing is in quarantine, and the
operators with errors are exactly the planted one.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spool import SpoolUnavailable

from .events import Listener, Notice
from .results import read_rows
from .summary import Summary
from .watch import watch

NO_FAULT = "none"
# Seconds for the training process to end once its session is closed.
_WIND_DOWN = 60.0


@dataclass(frozen=True)
class DemoOutcome:
    """What the demo found; true when exactly the planted fault was found and nothing was lost."""

    planted: str
    found: tuple[str, ...]
    rows: int
    captured: int
    problems: tuple[str, ...]
    results: Path
    reproduce: str | None

    def __bool__(self) -> bool:
        return not self.problems


def run_demo(folder: Path, *, fault: str, steps: int, on_event: Listener) -> DemoOutcome:
    """Train in a child process with `fault` planted, watch its spool from this one, and compare what was found.

    `folder` gets `spool/`, `results/` and `errors/`; the first two must not be there yet.
    """
    spool, out, errors = folder / "spool", folder / "results", folder / "errors"
    for path in (spool, out):
        if path.exists():
            raise SpoolUnavailable(f"{path}: is there already, from an earlier demo; remove it or give another --dir")
    spool.mkdir(parents=True)
    command = [sys.executable, "-m", "spool_check.demo_training", str(spool), "--fault", fault, "--steps", str(steps)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    stop = threading.Event()
    follower = threading.Thread(target=_follow, args=(child, on_event, stop), daemon=True)
    follower.start()
    try:
        summary = watch(str(spool), out=out, save_errors=errors, stop=stop, on_event=on_event)
        # The session is closed before the interpreter of the training has wound down.
        child.wait(timeout=_WIND_DOWN)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        follower.join(timeout=5)
    return _compare(spool, out, fault, child.returncode, summary)


def _follow(child: subprocess.Popen[str], on_event: Listener, stop: threading.Event) -> None:
    """Pass the training's lines on; a training that failed would be waited for in vain."""
    assert child.stdout is not None
    for line in child.stdout:
        on_event(Notice("info", line.rstrip()))
    if child.wait() != 0:
        stop.set()


def _compare(spool: Path, out: Path, fault: str, status: int, summary: Summary) -> DemoOutcome:
    rows = list(read_rows([out]))
    bad = [row for row in rows if row["verdict"] in ("error", "warning")]
    found = tuple(sorted({str(row["api"]).split(".", 1)[1].rsplit(".", 1)[0] for row in bad}))
    captured = sum(
        session.counts.get("captured", 0) + session.counts.get("unreplayable", 0) for session in summary.sessions
    )
    wanted = () if fault == NO_FAULT else (fault,)
    problems = []
    if status != 0:
        problems.append(f"the training process ended with status {status}")
    if found != wanted:
        problems.append(f"operators at fault: {', '.join(found) or 'none'}; planted: {', '.join(wanted) or 'none'}")
    if len(rows) != captured or not captured:
        problems.append(f"{captured} calls were recorded, {len(rows)} rows were written")
    left = [path.name for path in spool.rglob("*.safetensors")]
    if left:
        problems.append(f"{len(left)} bundles are left in the spool, {left[0]} for one")
    reproduce = next((row["reproduce"] for row in bad if row.get("reproduce")), None)
    return DemoOutcome(fault, found, len(rows), captured, tuple(problems), out, reproduce)


def outcome_lines(outcome: DemoOutcome) -> Iterator[str]:
    """The end of the demo in plain lines; the operator at fault comes first."""
    yield ""
    if outcome.found:
        yield f"FOUND: the operator at fault is {', '.join(outcome.found)}"
    else:
        yield "FOUND: no operator is at fault"
    yield f"planted: {outcome.planted}; {outcome.rows} rows for {outcome.captured} recorded calls"
    yield f"results: {outcome.results}"
    if outcome.reproduce:
        yield f"reproduce the first failing call: {outcome.reproduce}"
    for problem in outcome.problems:
        yield f"PROBLEM: {problem}"
    yield "demo: ok, exactly the planted fault was found" if outcome else "demo: not ok"

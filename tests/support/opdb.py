"""torch's own operator database, captured, replayed and judged on one device: every sample of every operator.

As a program it prints docs/coverage.md and, on standard error, what is wrong; with a number N, and another to begin with, for
every N-th case only.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from opdb_causes import CAUSES, cause_of
from processes import environment, rows_of
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

from spool_check import PrecisionDebugger

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64)


@dataclass
class Outcome:
    """What became of the calls of one operator in one dtype.

    Attributes:
        operator, dtype: as the database names them.
        samples: how many ran; `refused` raised in torch itself, without us.
        seen: calls that the debugger numbered.
        verdicts: calls by verdict.
        reasons: the calls that did not pass: (verdict, API without its number, message) → how many.
    """

    operator: str
    dtype: str
    samples: int = 0
    refused: int = 0
    seen: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)


def full_name(op: Any) -> str:
    """The operator's name in the database, with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def cases(ops: Iterable[Any] = op_db, dtypes: Iterable[torch.dtype] = DTYPES) -> Iterator[tuple[Any, torch.dtype]]:
    """Every operator in every one of the dtypes that its CPU kernels support."""
    for op in ops:
        for dtype in dtypes:
            if dtype in op.supported_dtypes("cpu"):
                yield op, dtype


def run_samples(chosen: Iterable[tuple[Any, torch.dtype]], spool: Path) -> list[Outcome]:
    """Run every sample of the cases under the debugger, one case a step; float32 backwards too."""
    outcomes = []
    with PrecisionDebugger(spool=spool, strict=True, max_pending_bundles=10_000_000) as debugger:
        for op, dtype in chosen:
            outcome = Outcome(full_name(op), str(dtype).removeprefix("torch."))
            before = debugger.counts()["seen"]
            _run_case(op, dtype, debugger, outcome)
            outcome.seen = debugger.counts()["seen"] - before
            outcomes.append(outcome)
            debugger.step()
    return outcomes


def _run_case(op: Any, dtype: torch.dtype, debugger: PrecisionDebugger, outcome: Outcome) -> None:
    backward = dtype is torch.float32 and bool(op.supports_autograd)
    debugger.stop()
    torch.manual_seed(0)
    samples = op.sample_inputs("cpu", dtype, requires_grad=backward)
    while True:
        try:
            sample = next(samples, None)
        except Exception:
            outcome.refused += 1
            return
        if sample is None:
            return
        debugger.start()
        try:
            result = op(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            outcome.refused += 1
            continue
        finally:
            debugger.stop()
        outcome.samples += 1
        if backward:
            _run_backward(result, debugger, outcome)


def _run_backward(result: Any, debugger: PrecisionDebugger, outcome: Outcome) -> None:
    outputs = [
        leaf
        for leaf in torch.utils._pytree.tree_leaves(result)
        if isinstance(leaf, Tensor) and leaf.requires_grad and leaf.layout is torch.strided
    ]
    gradients = [torch.randn_like(leaf) for leaf in outputs]
    if not outputs:
        return
    debugger.start()
    try:
        torch.autograd.backward(outputs, gradients)
    except RuntimeError:
        outcome.refused += 1
    finally:
        debugger.stop()


def judge(spool: Path, out: Path, outcomes: list[Outcome]) -> None:
    """Judge what was recorded and count the verdicts into `outcomes`."""
    # In a process of its own: the database's module has frozen torch's global flags in this one.
    command = [sys.executable, "-m", "spool_check", "reprocess", str(spool), "--out", str(out), "--workers", "2"]
    subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    for row in rows_of(out):
        outcome = outcomes[row["step"]]
        outcome.verdicts[row["verdict"]] += 1
        if row["verdict"] != "pass":
            outcome.reasons[row["verdict"], row["api"].rpartition(".")[0], row["message"]] += 1


def run(every: int = 1, start: int = 0) -> list[Outcome]:
    """Capture and judge every `every`-th case, beginning with the one numbered `start`."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run_samples(list(cases())[start::every], Path(folder) / "spool")
        judge(Path(folder) / "spool", Path(folder) / "out", outcomes)
    return outcomes


def document(outcomes: list[Outcome]) -> str:
    """docs/coverage.md."""
    lines = [_HEAD.format(torch=torch.__version__)]
    lines += [
        "| dtype | operators | samples | calls | pass | skip | error or warning |",
        "|---|---|---|---|---|---|---|",
    ]
    for dtype in [str(dtype).removeprefix("torch.") for dtype in DTYPES] + ["all"]:
        chosen = [o for o in outcomes if dtype in (o.dtype, "all")]
        total = sum((o.verdicts for o in chosen), Counter[str]())
        bad = total["error"] + total["warning"]
        counts = (len(chosen), sum(o.samples for o in chosen), total.total(), total["pass"], total["skip"], bad)
        lines.append(f"| {dtype} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    causes: Counter[str] = Counter()
    where: dict[str, set[str]] = defaultdict(set)
    for outcome in outcomes:
        for (verdict, api, message), count in outcome.reasons.items():
            cause = (cause_of(message) if verdict == "skip" else None) or f"{verdict}: {message}"
            causes[cause] += count
            where[cause].add(api)
    lines += ["", "## Calls that did not pass", "", "| cause | calls | APIs |", "|---|---|---|"]
    for cause, count in causes.most_common():
        apis = sorted(where[cause])
        shown = ", ".join(f"`{api}`" for api in apis[:12]) + (f" and {len(apis) - 12} more" if len(apis) > 12 else "")
        lines.append(f"| {cause} | {count:,} | {shown} |")
    judged = sum(o.verdicts["pass"] for o in outcomes)
    failed = sum(count for cause, count in causes.items() if cause not in CAUSES.values())
    lines += ["", f"Of the {judged + failed:,} deterministic calls with elements to compare, {judged:,} pass "
              f"({100 * judged / (judged + failed):.3f} %)."]  # fmt: skip
    return "\n".join(lines) + "\n"


_HEAD = """# Coverage: torch's operator database

Every sample of every entry of torch's own operator database (`torch.testing._internal`, torch {torch}) is run on the CPU under
the debugger, written into a directory spool, replayed on the CPU and judged with the default limits; float32 samples run their
backward too, whose operators are calls of their own. The device under test computes rightly here, so whatever is not a pass is
either a call that cannot be judged, with its reason below, or a fault of spool-check.

Made by `make opdb`; `make test` runs every tenth case of it.
"""


def faults(outcomes: list[Outcome]) -> list[str]:
    """Calls that were lost, and verdicts that nothing explains."""
    found = [
        f"{o.operator} {o.dtype}: {o.seen} calls, {o.verdicts.total()} rows"
        for o in outcomes
        if o.seen != o.verdicts.total()
    ]
    for o in outcomes:
        for (verdict, api, message), count in o.reasons.items():
            if verdict != "skip" or cause_of(message) is None:
                found.append(f"{o.operator} {o.dtype}: {count} {api}: {verdict}: {message}")
    return found


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    results = run(*words)
    print(document(results), end="")
    wrong = faults(results)
    print("\n".join(wrong), file=sys.stderr)
    sys.exit(1 if wrong else 0)

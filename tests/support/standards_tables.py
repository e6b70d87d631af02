"""Makes the measured tables of docs/standards.md: `python tests/support/standards_tables.py` rewrites them in place."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from fault_cases import APIS, COLUMNS, DTYPES, SCALES, Api, patterns, runs_of, whole_faults  # noqa: E402
from verdict_oracle import MANTISSA, allowed_size, limits_fail  # noqa: E402

from comparators import judge, load_profile  # noqa: E402
from comparators.names import THREE_WAY  # noqa: E402

DOCUMENT = ROOT / "docs" / "standards.md"
ONE_OF_EACH = {
    "binary consistency": "Functional.relu",
    "absolute threshold": "Torch.mul",
    "ULP": "Torch.matmul",
    "thousandth": "Functional.conv2d",
    "benchmark": "Functional.gelu",
}
ELEMENTS = 1000
PROFILE = load_profile()


def smallest_found() -> str:
    """Per standard, dtype and scale: the smallest relative error that makes a verdict an error."""
    lines = [
        "| standard | dtype | error of | " + " | ".join(f"scale {scale:g}" for scale in SCALES) + " |",
        "|---|---|---|" + "---|" * len(SCALES),
    ]
    for standard, api in ONE_OF_EACH.items():
        for name, dtype in DTYPES.items():
            for what in ("all elements", "one element"):
                found = [_smallest(api, dtype, scale, what) for scale in SCALES]
                lines.append(f"| {standard} | {name} | {what} | " + " | ".join(found) + " |")
    return "\n".join(lines)


def _smallest(api: str, dtype: torch.dtype, scale: float, what: str) -> str:
    generator = torch.Generator().manual_seed(2)
    golden = torch.randn(ELEMENTS, generator=generator, dtype=torch.float64) * scale
    golden = golden.to(torch.float64 if dtype is torch.float32 else torch.float32)
    reference = golden.to(dtype)
    if not bool(torch.isfinite(reference).all()):
        return "overflow"
    three_way = PROFILE.standard(f"{api}.0")[0] in THREE_WAY
    middle = int(golden.abs().argsort()[ELEMENTS // 2])
    for step in range(-24, 7):
        error = torch.zeros(ELEMENTS, dtype=torch.float64)
        error[middle if what == "one element" else slice(None)] = 2.0**step
        device = (reference.double() * (1 + error)).to(dtype)
        if torch.equal(device, reference) or not bool(torch.isfinite(device).all()):
            continue
        if not judge(f"{api}.0", device, reference, golden if three_way else None):
            return f"2^{step}"
    return "none up to 64"


def fault_table() -> str:
    """Per fault: how many were injected and found, and how many clean pairs were flagged."""
    injected: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for api in APIS:
        for name in DTYPES:
            for scale in SCALES:
                for fault, judged in _judged(api, name, scale):
                    injected[fault] += 1
                    found[fault] += not judged
    lines = ["| pair | judged | flagged |", "|---|---|---|"]
    lines += [f"| {fault} | {injected[fault]} | {found[fault]} |" for fault in sorted(injected)]
    return "\n".join(lines)


def _judged(api: Api, name: str, scale: float) -> list[tuple[str, bool]]:
    dtype = DTYPES[name]
    runs, other = runs_of(api, dtype, scale), runs_of(api, dtype, scale, seed=1)
    if not all(bool(torch.isfinite(x).all()) for x in runs.inputs if x.is_floating_point()):
        return []
    standard = PROFILE.standard(f"{api.name}.0")[0]
    golden = runs.golden if standard in THREE_WAY else None
    limits = PROFILE.limits(f"{api.name}.0", str(dtype).removeprefix("torch.")).values

    def verdict(outputs: tuple[torch.Tensor, ...]) -> bool:
        return bool(judge(f"{api.name}.0", outputs, runs.native, golden, args=runs.inputs))

    done: list[tuple[str, bool]] = []
    if (api.name, name, scale) != ("Functional.normalize", "fp16", 1e-6):
        done += [(f"clean: {how}", verdict(outputs)) for how, outputs in runs.clean.items()]
    native, rest = runs.native[0], runs.native[1:]
    if not native.is_floating_point():
        done.append(("index off by one", verdict(((native + 1) % COLUMNS,))))
    if rest and not rest[0].is_floating_point():
        done.append(("wrong indices among right values", verdict((native, rest[0].roll(1, -1)))))
    bench = native if golden is None else golden[0]
    if not native.is_floating_point() or not bool(torch.isfinite(native).all()) or not bool(native.any()):
        return [*done, ("missing output", verdict(rest))]
    for fault, pattern in patterns(native):
        size = 4 * allowed_size(pattern, bench, native, dtype, standard, limits)
        size = max(size, 2.0 ** (2 - MANTISSA[dtype]), 2.0**-24 / float(pattern.abs().max()))
        done.append(
            (f"{fault}, 4 times what is allowed", verdict(((native.double() + size * pattern).to(dtype), *rest)))
        )
    for fault, wrong in whole_faults(native, other.native[0]):
        if bool(torch.isfinite(wrong).all()) and limits_fail(
            (wrong.double() - bench.double()) / 4, bench, native, dtype, standard, limits
        ):
            done.append((fault, verdict((wrong, *rest))))
    for value in (math.nan, math.inf):
        special = native.clone(memory_format=torch.contiguous_format)
        special.view(-1)[0] = value
        done.append((f"one {value}", verdict((special, *rest))))
    return [*done, ("missing output", verdict(rest)), ("other shape", verdict((native.unsqueeze(0), *rest)))]


TABLES = {"smallest": smallest_found, "faults": fault_table}


def _span(text: str, name: str) -> tuple[int, int]:
    """Where the table of a name stands between its markers."""
    start, end = f"<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->"
    return text.index(start) + len(start), text.index(end)


def table_in(text: str, name: str) -> str:
    """The table of a name in the document."""
    start, end = _span(text, name)
    return text[start:end]


def main() -> None:
    """Rewrite the tables."""
    torch.set_num_threads(1)
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, make in TABLES.items():
        start, end = _span(text, name)
        text = text[:start] + make() + text[end:]
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""What a comparison costs: per element, against one read pass, against the peer, and in memory.

    python benchmarks/compare.py [--quick]

One thread. Every figure of a row is measured in the same run on the same data. `sweep` is one pair with all columns,
`judge` the whole verdict (three-way standards sweep twice), `read` the sum of both tensors. The peer runs in its own
environment (`make peer`), where there is one, and compares the same pairs: device and reference, or in three-way
standards both with golden; it computes the columns of the one standard, `judge` all. Extra memory is the peak above the
inputs, as a multiple of their size.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from comparators import judge, load_profile  # noqa: E402
from comparators.dtypes import FORMATS  # noqa: E402
from comparators.float_outputs import Comparison  # noqa: E402
from comparators.native import library  # noqa: E402

SIZES = (10**4, 10**6, 10**7)
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
STANDARDS = {"absolute": "mul", "binary": "relu", "ULP": "matmul", "thousandth": "conv2d", "benchmark": "exp"}
THREE_WAY = ("ULP", "benchmark")
PEER = ROOT / ".venv-peer" / "bin" / "python"

PEER_SCRIPT = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, torch
from safetensors.torch import load_file
from msprobe.pytorch.api_accuracy_checker.compare.compare import Comparator
np.seterr(all="ignore")
torch.set_num_threads(1)
pairs, apis = load_file(sys.argv[1]), json.loads(sys.argv[2])
comparator = Comparator("unused.csv", "unused.csv", True)
found = {}
for name, api in apis.items():
    best = 1e9
    three_way = name in ("ULP", "benchmark")
    for _ in range(3):
        start = time.perf_counter()
        if three_way:
            comparator._compare_core_wrapper(api, pairs["golden"], pairs["device"])
            comparator._compare_core_wrapper(api, pairs["golden"], pairs["reference"])
        else:
            comparator._compare_core_wrapper(api, pairs["reference"], pairs["device"])
        best = min(best, time.perf_counter() - start)
    found[name] = best
print(json.dumps(found))
"""


def best_of(run: Callable[[], object], seconds: float = 0.4) -> float:
    """The quickest of several runs, in seconds."""
    best, spent = 1e9, 0.0
    while spent < seconds:
        start = time.perf_counter()
        run()
        took = time.perf_counter() - start
        best, spent = min(best, took), spent + took
    return best


def peer_seconds(device: torch.Tensor, reference: torch.Tensor, golden: torch.Tensor) -> dict[str, float]:
    """Seconds of the peer's comparison by standard, without its CSV files; empty where it is not installed."""
    if not PEER.exists():
        return {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pair.safetensors"
        save_file({"device": device, "reference": reference, "golden": golden}, file)
        words = [str(PEER), "-c", PEER_SCRIPT, str(file), json.dumps(STANDARDS)]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def extra_memory(dtype: str, size: int) -> float:
    """Peak memory of one verdict above the inputs, over the inputs' size, in a fresh process."""
    script = (
        "import resource, torch\n"
        f"from benchmarks.compare import pair, DTYPES\nfrom comparators import judge\n"
        f"d, r, g = pair(DTYPES[{dtype!r}], {size})\n"
        "small = [t[:1000].clone() for t in (d, r, g)]\n"
        "judge('Torch.exp.0', *small)\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "ballast = torch.ones(max(1, (peak() - int(open('/proc/self/statm').read().split()[1]) * 4096) // 4 + 1))\n"
        "before = peak()\njudge('Torch.exp.0', d, r, g)\n"
        "print((peak() - before) / (d.nbytes + g.nbytes))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout)


def pair(dtype: torch.dtype, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Device, reference and golden outputs: rounding apart from each other."""
    generator = torch.Generator().manual_seed(0)
    golden = torch.randn(size, generator=generator, dtype=torch.float64)
    device = (golden * (1 + 1e-7 * torch.randn(size, generator=generator))).to(dtype)
    return device, golden.to(dtype), golden.to(torch.float64 if dtype is torch.float32 else torch.float32)


def rows(sizes: tuple[int, ...]) -> None:
    """Print the table."""
    print("| dtype | elements | read ns | sweep ns | sweep / read | standard | judge ns | judge µs | peer / judge |")
    print("|---|---|---|---|---|---|---|---|---|")
    profile = load_profile()
    for name, dtype in DTYPES.items():
        for size in sizes:
            device, reference, golden = pair(dtype, size)
            comparison = Comparison("benchmark", FORMATS[dtype], dtype, profile.limits("x", str(dtype)[6:]))
            read = best_of(lambda d=device, r=reference: (d.sum(), r.sum()))
            sweep = best_of(lambda c=comparison, d=device, r=reference: c.totals(d, r))
            peer = peer_seconds(device, reference, golden)
            for standard, base in STANDARDS.items():
                best = golden if standard in THREE_WAY else None
                took = best_of(lambda b=base, d=device, r=reference, g=best: judge(f"Torch.{b}.0", d, r, g))
                times = f"{peer[standard] / took:.1f}" if peer else "not installed"
                print(
                    f"| {name} | {size:.0e} | {read / size * 1e9:.3f} | {sweep / size * 1e9:.2f} | {sweep / read:.1f} | "
                    f"{standard} | {took / size * 1e9:.2f} | {took * 1e6:.0f} | {times} |",
                    flush=True,
                )


def main() -> None:
    """Print everything."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="without 10^7 elements")
    quick = options.parse_args().quick
    torch.set_num_threads(1)
    print(f"inner loop: {'compiled' if library() is not None else 'NumPy'}; torch {torch.__version__}, one thread")
    sizes = SIZES[:2] if quick else SIZES
    rows(sizes)
    for dtype in DTYPES:
        print(f"extra memory of a three-way verdict, {dtype}, {sizes[-1]:.0e}: {extra_memory(dtype, sizes[-1]):.2f}x")


if __name__ == "__main__":
    main()

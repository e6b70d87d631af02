"""Profile `msprobe-8.3` against the peer itself: the same numbers to 1e-12 and the same statuses."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import torch
from peer_tool import Pair, peer_columns, require_peer

from comparators import load_profile
from comparators.ladder import ladder
from comparators.metrics import number
from comparators.names import ACCUMULATIVE
from comparators.peer_arithmetic import peer_metrics

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("peer")]

# What our files say otherwise on purpose, each with its reason.
KNOWN_DEVIATIONS = {
    "Warning": "the peer capitalises this one status word; the files' words are pass, warning, error, SKIP",
}
DTYPES = [
    (torch.float32, torch.float32),
    (torch.float32, torch.float64),
    (torch.float16, torch.float32),
    (torch.float16, torch.float16),
    (torch.bfloat16, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.float64, torch.float64),
]
APIS = ["mul", "exp", "matmul", "conv2d", "relu", "test_api"]
SCALES = [1e-30, 1e-8, 1e-5, 1e-3, 1.0, 1e3, 1e6, 1e30]
ERRORS = [0.0, 1e-7, 1e-4, 1e-2, 1.0]
SHAPES = [(1,), (2,), (7,), (33, 5), (1000,), (128, 65)]
COLUMNS = (
    "bench_type npu_type shape cosine max_abs_err hundredth thousandth ten_thousandth error_rate eb rmse "
    "small_value_share max_rel_err mean_rel_err inf_nan_share rel_err_share abs_err_share max_ulp mean_ulp ulp_share "
    "status message"
).split()
LADDER = ("cosine", "max_abs_err", "hundredth", "thousandth", "ten_thousandth")
NOT_FIGURES = {"bench_type", "npu_type", "shape", "status", "message"}


def _pairs() -> list[Pair]:
    """A pair for every API, dtype, scale and error; shapes and special values drawn."""
    generator, draw = torch.Generator().manual_seed(1), random.Random(0)
    found: list[Pair] = []
    for api in APIS:
        for device_dtype, bench_dtype in DTYPES:
            for scale in SCALES:
                for error in ERRORS:
                    shape = draw.choice(SHAPES)
                    exact = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
                    off = exact * (1 + error * torch.randn(shape, generator=generator, dtype=torch.float64))
                    device, bench = off.to(device_dtype), exact.to(bench_dtype)
                    kind = draw.choice(["plain", "plain", "zero", "nan", "inf", "both"])
                    if kind == "zero":
                        bench.view(-1)[0] = 0
                    if kind == "nan":
                        device.view(-1)[-1] = math.nan
                    if kind in ("inf", "both"):
                        device.view(-1)[0] = math.inf
                    if kind == "both":
                        bench.view(-1)[0] = math.inf
                        device.view(-1)[-1] = bench.view(-1)[-1] = math.nan
                    found.append((api, device, bench))
    return found


def _ours(api: str, device: torch.Tensor, bench: torch.Tensor) -> dict[str, float | str | None]:
    profile = load_profile("msprobe-8.3")
    standard = ACCUMULATIVE if api == "test_api" else profile.standard(api)[0]
    limits = profile.limits(api, str(device.dtype).removeprefix("torch."))
    metrics = peer_metrics(device, bench, standard, limits)
    status, _, looked = ladder(metrics, device.dtype, limits)
    shown = {*looked, "thousandth"} if api == "conv2d" and device.dtype != torch.float64 else set(looked)
    found: dict[str, float | str | None] = {"status": status}
    for name in COLUMNS:
        if name not in NOT_FIGURES:
            known = metrics.get(name) is not None and (name in shown or name not in LADDER)
            found[name] = number(metrics, name) if known else None
    return found


def _same(ours: float | str | None, theirs: object) -> bool:
    if ours is None or theirs == " ":
        return ours is None and theirs == " "
    assert isinstance(ours, float)
    value = float(str(theirs))
    return ours == value or (math.isnan(ours) and math.isnan(value)) or abs(ours - value) <= 1e-12 * abs(value)


def test_every_figure_and_status_is_the_peers(tmp_path: Path) -> None:
    require_peer()
    pairs = _pairs()
    assert len(pairs) >= 1000
    wrong: list[str] = []
    for number_, ((api, device, bench), theirs) in enumerate(zip(pairs, peer_columns(pairs, tmp_path), strict=True)):
        ours = _ours(api, device, bench)
        status = theirs["status"].lower() if theirs["status"] in KNOWN_DEVIATIONS else theirs["status"]
        where = f"pair {number_}: {api} {device.dtype} {bench.dtype} {tuple(device.shape)}"
        if ours["status"] != status:
            wrong.append(f"{where}: status {ours['status']} against {status}")
        for name, value in zip(COLUMNS, theirs["row"], strict=True):
            if name not in NOT_FIGURES and not _same(ours[name], value):
                wrong.append(f"{where}: {name} {ours[name]} against {value}")
    assert not wrong, f"{len(wrong)} deviations, the first: " + "\n".join(wrong[:10])


def test_int_and_bool_outputs_are_the_peers(tmp_path: Path) -> None:
    require_peer()
    cases: list[Pair] = [
        ("exp", torch.tensor([1, 2, 3]), torch.tensor([1, 2, 3])),
        ("exp", torch.tensor([1, 2, 4]), torch.tensor([1, 2, 3])),
        ("argmax", torch.tensor([True, False]), torch.tensor([True, True])),
    ]
    profile = load_profile("msprobe-8.3")
    from comparators import judge

    for (api, device, bench), theirs in zip(cases, peer_columns(cases, tmp_path), strict=True):
        judged = judge(f"Torch.{api}.0", device, bench, profile=profile)
        assert judged.status == theirs["status"]
        assert judged.outputs[0].metrics["error_rate"] == theirs["row"][COLUMNS.index("error_rate")]

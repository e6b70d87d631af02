"""Every metric against a brute-force computation in float64, and the properties that hold for any pair."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_oracle import brute_metrics

from comparators import judge, load_profile
from comparators.dtypes import FORMATS
from comparators.kernels import DeviceKernels
from comparators.metrics import metrics_of, number
from comparators.sweep import sweep
from comparators.totals import Thresholds

PAIRS = [
    (torch.float32, torch.float32),
    (torch.float32, torch.float64),
    (torch.float16, torch.float16),
    (torch.float16, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.bfloat16, torch.float32),
]
SCALES = [1e-30, 1e-6, 1e-3, 1.0, 1e3, 1e30]


def _limits(dtype: torch.dtype):
    return load_profile().limits("Torch.exp.0", str(dtype).removeprefix("torch."))


def _sweep(device: torch.Tensor, bench: torch.Tensor, chunk: int | None = None) -> dict:
    limits = _limits(device.dtype)
    names = ("small_value", "small_value_atol", "benchmark_atol", "rtol", "ulp_threshold")
    form = FORMATS[device.dtype]
    eps = 2.0**-8 if device.dtype is torch.bfloat16 else torch.finfo(bench.dtype).eps
    return metrics_of(sweep(device, bench, form, eps, Thresholds(*(limits[name] for name in names)), chunk=chunk))


def _pair(dtype: torch.dtype, bench_dtype: torch.dtype, scale: float, size: int, error: float, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn(size, generator=generator, dtype=torch.float64) * scale
    off = exact * (1 + error * torch.randn(size, generator=generator, dtype=torch.float64))
    exact[::7] = 0
    bench, device = exact.to(bench_dtype), off.to(dtype)
    device, bench = (torch.where(torch.isfinite(t), t, torch.ones_like(t)) for t in (device, bench))
    # Where float16 cannot hold the bench, the element is set aside; the oracle has no such rule.
    return device, torch.where(bench.abs() < FORMATS[dtype].largest, bench, torch.ones_like(bench))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("error", [0.0, 1e-7, 1e-3, 0.5])
@pytest.mark.parametrize(("dtype", "bench_dtype"), PAIRS)
def test_metrics_are_those_of_the_definitions(
    dtype: torch.dtype, bench_dtype: torch.dtype, scale: float, error: float
) -> None:
    device, bench = _pair(dtype, bench_dtype, scale, 3000, error)
    found = _sweep(device, bench)
    difference = (device.double() - bench.double()).numpy()
    expected = brute_metrics(difference, bench.double().numpy(), dtype, bench_dtype, _limits(dtype).values)
    # Where both sides fit float32 the elements are computed in it, as the definitions say: seven digits.
    tolerance = 1e-11 if bench_dtype is torch.float64 else 1e-6
    for name, value in expected.items():
        if math.isnan(value) or found[name] is None:
            continue
        # A threshold may lie between an element's value in float32 and in float64.
        slack = 2 / 3000 if name.endswith(("share", "hundredth", "thousandth")) and tolerance > 1e-9 else 0.0
        assert number(found, name) == pytest.approx(value, rel=tolerance, abs=max(slack, 1e-40)), name


@pytest.mark.parametrize(("dtype", "bench_dtype"), PAIRS)
def test_chunk_size_changes_no_figure(dtype: torch.dtype, bench_dtype: torch.dtype) -> None:
    device, bench = _pair(dtype, bench_dtype, 1.0, 30001, 1e-3)
    device[17], bench[20], device[29000] = math.nan, math.inf, -math.inf
    whole = _sweep(device, bench, chunk=30001)
    for chunk in (1000, 4096, 16384):
        part = _sweep(device, bench, chunk=chunk)
        for name, value in whole.items():
            if isinstance(value, float) and not math.isnan(value):
                assert number(part, name) == pytest.approx(value, rel=1e-12, abs=1e-300), name
            elif value is not None and not isinstance(value, float):
                assert part[name] == value, name


@pytest.mark.parametrize(("dtype", "bench_dtype"), PAIRS)
def test_device_kernels_agree(dtype: torch.dtype, bench_dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels for accelerators, run on the CPU."""
    device, bench = _pair(dtype, bench_dtype, 1.0, 20000, 1e-3)
    device[17], bench[20] = math.nan, math.inf
    host = _sweep(device, bench)
    monkeypatch.setattr("comparators.sweep.library", lambda: None)
    monkeypatch.setattr(
        "comparators.sweep.kernels_for",
        lambda where, work, size, chunk: DeviceKernels(where, work, min(size, 5000)),
    )
    for name, value in _sweep(device, bench).items():
        if isinstance(value, float) and not math.isnan(value):
            assert value == pytest.approx(number(host, name), rel=1e-12), name


values = st.floats(-1e4, 1e4, width=32, allow_nan=False, allow_infinity=False)
APIS = ["Torch.mul.0", "Torch.relu.0", "Torch.matmul.0", "Functional.conv2d.0", "Torch.exp.0"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(values, st.sampled_from([math.nan, math.inf, -math.inf])), min_size=1, max_size=40))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("api", APIS)
def test_identity_passes(api: str, dtype: torch.dtype, numbers: list[float]) -> None:
    output = torch.tensor(numbers).to(dtype)
    golden = output.to(torch.float64 if dtype is torch.float32 else torch.float32)
    assert judge(api, output, output.clone(), golden).verdict in ("pass", "warning")
    assert judge(api, output, output.clone()).verdict == "pass"


@settings(max_examples=30, deadline=None)
@given(st.lists(values, min_size=2, max_size=50), st.randoms(use_true_random=False))
def test_permuting_both_sides_changes_no_figure(numbers: list[float], random) -> None:
    bench = torch.tensor(numbers)
    device = bench * 1.0003 + 1e-4
    order = list(range(len(numbers)))
    random.shuffle(order)
    straight, permuted = _sweep(device, bench), _sweep(device[order], bench[order])
    for name, value in straight.items():
        if isinstance(value, float) and not math.isnan(value):
            assert number(permuted, name) == pytest.approx(value, rel=1e-12, abs=1e-300), name


@settings(max_examples=30, deadline=None)
@given(st.lists(values, min_size=2, max_size=50), st.lists(values, min_size=2, max_size=50))
def test_symmetric_metrics(ours: list[float], theirs: list[float]) -> None:
    size = min(len(ours), len(theirs))
    a, b = torch.tensor(ours[:size]), torch.tensor(theirs[:size])
    one, other = _sweep(a, b), _sweep(b, a)
    for name in ("cosine", "max_abs_err", "error_rate", "eb", "euclidean_distance"):
        assert one[name] == other[name] or number(one, name) == pytest.approx(number(other, name), rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-9, 1e-1), st.floats(1.0, 1e3), st.integers(0, 1000))
@pytest.mark.parametrize("api", APIS)
def test_a_larger_error_never_improves_the_verdict(api: str, size: float, factor: float, seed: int) -> None:
    severity = {"pass": 0, "warning": 1, "error": 2}
    generator = torch.Generator().manual_seed(seed)
    golden = torch.randn(64, generator=generator, dtype=torch.float64)
    reference = golden.float()
    pattern = torch.randn(64, generator=generator, dtype=torch.float64)
    small, large = (
        judge(api, (golden + scale * pattern).float(), reference, golden).verdict for scale in (size, size * factor)
    )
    assert severity[large] >= severity[small]


@pytest.mark.parametrize(("dtype", "bench_dtype"), PAIRS)
def test_compiled_and_numpy_loops_agree(
    dtype: torch.dtype, bench_dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, bench = _pair(dtype, bench_dtype, 1.0, 70000, 1e-3)
    device[17], bench[20], device[60000], bench[60000] = math.nan, math.inf, -math.inf, -math.inf
    compiled = _sweep(device, bench)
    monkeypatch.setattr("comparators.sweep.library", lambda: None)
    for name, value in _sweep(device, bench).items():
        if isinstance(value, float) and not math.isnan(value):
            assert value == pytest.approx(number(compiled, name), rel=1e-12), name
        elif value is not None and not isinstance(value, float):
            assert value == compiled[name], name


def test_without_a_compiler_numpy_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from comparators.native import library

    monkeypatch.setenv("SPOOL_CHECK_NATIVE", "0")
    assert library.__wrapped__() is None
    monkeypatch.delenv("SPOOL_CHECK_NATIVE")
    monkeypatch.setattr("comparators.native.shutil.which", lambda name: None)
    monkeypatch.setattr("comparators.native._FLAGS", ("-never-built",))
    assert library.__wrapped__() is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("place", ["last of five", "transposed", "every other", "reversed"])
def test_a_view_is_judged_by_its_own_elements(dtype: torch.dtype, place: str) -> None:
    torch.manual_seed(0)
    whole = torch.randn(5, 5, 5).to(dtype)
    # The first of these is one dimension of equal steps when flattened, and still no memory in one piece.
    view = {
        "last of five": whole[:, :, 4:],
        "transposed": whole[0].t(),
        "every other": whole[::2, ::2],
        "reversed": whole.flip(0)[:, 1],
    }[place]
    wide = torch.float64 if dtype in (torch.float32, torch.float64) else torch.float32
    other = view.clone()
    other[0, 0] += 1
    for api in ("Torch.exp.0", "Torch.mul.0", "Torch.chunk.0"):
        assert judge(api, view, view.clone(), view.to(wide)).verdict == "pass"
        assert judge(api, view.clone(), view, view.to(wide)).verdict == "pass"
        assert judge(api, other, view, view.to(wide)).verdict == "error"
        assert judge(api, view, other, other.to(wide)).verdict == "error"

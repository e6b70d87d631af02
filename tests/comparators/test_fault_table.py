"""The fault table: everything beyond four times what the limits allow is found, and no clean pair is flagged."""

from __future__ import annotations

import math

import pytest
import torch
from fault_cases import APIS, DTYPES, SCALES, Api, Runs, patterns, runs_of, whole_faults
from verdict_oracle import MANTISSA, allowed_size, limits_fail

from comparators import judge, load_profile
from comparators.names import THREE_WAY

PROFILE = load_profile()
# Clean pairs that are none: the run in the dtype itself loses its digits inside.
NOT_CLEAN = {
    ("Functional.normalize", "fp16", 1e-6): "the norm of the row is a subnormal number with three bits",
}


def _runs(api: Api, dtype: str, seed: int = 0) -> list[tuple[float, Runs]]:
    """Runs at every scale that the dtype can hold."""
    found = [(scale, runs_of(api, DTYPES[dtype], scale, seed)) for scale in SCALES]
    return [
        (scale, runs)
        for scale, runs in found
        if all(bool(torch.isfinite(x).all()) for x in runs.inputs if x.is_floating_point())
    ]


def _standard(api: Api) -> str:
    return PROFILE.standard(f"{api.name}.0")[0]


def _golden(api: Api, runs: Runs) -> tuple[torch.Tensor, ...] | None:
    return runs.golden if _standard(api) in THREE_WAY else None


def test_there_are_enough_apis_over_all_standards() -> None:
    standards = {_standard(api) for api in APIS}
    assert len(APIS) >= 40
    assert standards == {"absolute threshold", "binary consistency", "ULP", "thousandth", "benchmark"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_clean_pairs_are_not_flagged(api: Api, dtype: str) -> None:
    for scale, runs in _runs(api, dtype):
        if (api.name, dtype, scale) in NOT_CLEAN:
            continue
        for how, outputs in runs.clean.items():
            for device, reference in ((outputs, runs.native), (runs.native, outputs)):
                judged = judge(f"{api.name}.0", device, reference, _golden(api, runs), args=runs.inputs)
                assert judged, f"scale {scale}, {how}: {judged}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_sized_faults_are_found_at_four_times_what_is_allowed(api: Api, dtype: str) -> None:
    standard, kind = _standard(api), DTYPES[dtype]
    limits = PROFILE.limits(f"{api.name}.0", str(kind).removeprefix("torch.")).values
    for scale, runs in _runs(api, dtype):
        native, golden = runs.native[0], _golden(api, runs)
        bench = native if golden is None else golden[0]
        if not native.is_floating_point() or not bool(torch.isfinite(native).all()) or not bool(native.any()):
            continue
        for fault, pattern in patterns(native):
            size = allowed_size(pattern, bench, native, kind, standard, limits)
            assert size < math.inf
            # What the dtype cannot resolve is no error yet.
            size = max(4 * size, 2.0 ** (2 - MANTISSA[kind]), 2.0**-24 / float(pattern.abs().max()))
            wrong = (native.double() + size * pattern).to(kind)
            judged = judge(f"{api.name}.0", (wrong, *runs.native[1:]), runs.native, golden, args=runs.inputs)
            assert not judged, f"scale {scale}, {fault} of {size:.3g}: {judged}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_wrong_outputs_are_found(api: Api, dtype: str) -> None:
    """Faults without a size, wherever a quarter of their error is beyond the limits."""
    standard, kind = _standard(api), DTYPES[dtype]
    limits = PROFILE.limits(f"{api.name}.0", str(kind).removeprefix("torch.")).values
    for (scale, runs), (_, other) in zip(_runs(api, dtype), _runs(api, dtype, seed=1), strict=True):
        native, golden = runs.native[0], _golden(api, runs)
        bench = native if golden is None else golden[0]
        if not native.is_floating_point() or not bool(torch.isfinite(native).all()) or not bool(native.any()):
            continue
        for fault, wrong in whole_faults(native, other.native[0]):
            if not bool(torch.isfinite(wrong).all()):
                continue
            quarter = (wrong.double() - bench.double()) / 4
            if limits_fail(quarter, bench, native, kind, standard, limits):
                judged = judge(f"{api.name}.0", (wrong, *runs.native[1:]), runs.native, golden, args=runs.inputs)
                assert not judged, f"scale {scale}, {fault}: {judged}"


SPECIAL = (math.nan, math.inf, -math.inf)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_special_values_and_structure_are_always_found(api: Api, dtype: str) -> None:
    for _, runs in _runs(api, dtype):
        native, golden = runs.native[0], _golden(api, runs)
        rest = runs.native[1:]
        name = f"{api.name}.0"
        if native.is_floating_point() and bool(torch.isfinite(native).all()):
            for value in SPECIAL:
                wrong = native.clone(memory_format=torch.contiguous_format)
                wrong.view(-1)[-1] = value
                assert not judge(name, (wrong, *rest), runs.native, golden, args=runs.inputs)
                assert not judge(name, runs.native, (wrong, *rest), golden, args=runs.inputs)
            assert not judge(name, (torch.full_like(native, math.nan), *rest), runs.native, golden, args=runs.inputs)
        for wrong_outputs in ((native.unsqueeze(0), *rest), (*rest,), (native, *rest, native), (None, *rest)):
            assert not judge(name, wrong_outputs, runs.native, golden, args=runs.inputs)
        other = native.double() if native.is_floating_point() else native.to(torch.int32)
        assert not judge(name, (other, *rest), runs.native, golden, args=runs.inputs)
        if not native.is_floating_point():
            assert not judge(name, (native + 1, *rest), runs.native, golden)

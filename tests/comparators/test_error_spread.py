"""How the errors of a failing output are spread: counted against a plain loop, and only where something fails."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from comparators import judge
from comparators.spread import error_spread


def by_loop(device: list[float], bench: list[float]) -> dict[str, Any]:
    """The same numbers, one element after the other."""
    pairs = [(a, b) for a, b in zip(device, bench, strict=True) if math.isfinite(a) and math.isfinite(b)]
    errors = Counter(math.floor(math.log10(abs(a - b))) for a, b in pairs if a != b)
    sizes: dict[int, list[float]] = {}
    for a, b in pairs:
        if b:
            sizes.setdefault(math.floor(math.log10(abs(b))), []).append(abs(a - b))
    return {
        "errors": [[decade, count] for decade, count in sorted(errors.items())],
        "equal": sum(a == b for a, b in pairs),
        "special": len(device) - len(pairs),
        "by_magnitude": [
            [decade, len(found), float(f"{max(found):.4g}"), float(f"{sum(found) / len(found):.4g}")]
            for decade, found in sorted(sizes.items())
        ],
    }


CASES: dict[str, tuple[list[float], list[float]]] = {
    "decades": ([1.5, 10.25, 100.0, 0.01], [1.0, 10.0, 100.0, 0.03]),
    "special": ([1.0, math.nan, 2.0, math.inf], [1.0, 1.0, math.inf, math.inf]),
    "zeros": ([0.0, 0.5, -0.5], [0.0, 0.0, 0.5]),
    "tiny and huge": ([5e-324, 1e-300, 1e300], [1e-320, 2e-300, 3e300]),
    "nothing finite": ([math.nan], [math.nan]),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_spread_is_that_of_a_plain_loop(name: str) -> None:
    device, bench = (torch.tensor(values, dtype=torch.float64) for values in CASES[name])
    assert error_spread(device, bench) == by_loop(*CASES[name])


def test_very_many_elements_are_sampled_always_the_same_way() -> None:
    bench = torch.rand(300, 1000, generator=torch.Generator().manual_seed(1))
    device = bench + 0.5 * (torch.arange(1000) % 2)
    found = error_spread(device, bench)
    assert found is not None
    assert found == error_spread(device, bench)
    assert found["sampled"] == found["equal"] + sum(count for _, count in found["errors"])
    # Every other column is off; a stride would have seen all of them or none.
    assert found["equal"] / found["sampled"] == pytest.approx(0.5, abs=0.02)


NO_SPREAD: dict[str, tuple[Any, Any]] = {
    "integers": (torch.tensor([1]), torch.tensor([2])),
    "shapes": (torch.zeros(2), torch.zeros(3)),
    "empty": (torch.zeros(0), torch.zeros(0)),
    "complex": (torch.zeros(1, dtype=torch.complex64), torch.ones(1, dtype=torch.complex64)),
    "no tensors": (1.0, 2.0),
}


@pytest.mark.parametrize("name", sorted(NO_SPREAD))
def test_what_has_no_spread(name: str) -> None:
    assert error_spread(*NO_SPREAD[name]) is None


def test_only_failing_outputs_carry_a_spread() -> None:
    good = torch.tensor([1.0, 2.0, 3.0])
    outputs = judge("Torch.add.0", (good, good + 0.5), (good, good)).to_json()["outputs"]
    assert [output["verdict"] for output in outputs] == ["pass", "error"]
    assert ["spread" in output for output in outputs] == [False, True]
    assert outputs[1]["spread"]["errors"] == [[-1, 3]]

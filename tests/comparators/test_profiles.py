"""Profiles: what ships, what a user may override, and every way of getting it wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from comparators import ProfileError, describe_standard, judge, load_profile

BAD = [
    ({"bases": "default"}, "did you mean 'base'"),
    ({"base": "best"}, "no shipped profile"),
    ({"limits": {"cosin": 0.9}}, "did you mean 'cosine'"),
    ({"limits": {"cosine": -0.1}}, "zero or positive"),
    ({"limits": {"cosine": float("nan")}}, "not NaN"),
    ({"limits": {"cosine": "0.9"}}, "not a number"),
    ({"limits": {"cosine": True}}, "not a number"),
    ({"limits": {"cosine": 1.5}}, "must not exceed 1"),
    ({"limits": [1]}, "JSON object"),
    ({"dtypes": {"float15": {"rtol": 1}}}, "did you mean 'float16'"),
    ({"apis": {"mul": {"rmse": 1}}}, "did you mean 'rmse_ratio'"),
    ({"apis": {"mul": {"standard": "benchmarks"}}}, "did you mean 'benchmark'"),
    ({"apis": {"mul": {"dtypes": {"half": {}}}}}, "unknown dtype"),
]


@pytest.mark.parametrize(("data", "said"), BAD, ids=[said for _, said in BAD])
def test_a_bad_profile_says_what_is_wrong(data: dict, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ProfileError, match="mine") as caught:
        load_profile(path)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["defualt", "no/such/file.json"])
def test_an_unknown_profile_is_refused(name: str) -> None:
    with pytest.raises(ProfileError, match="neither shipped"):
        judge("Torch.mul.0", torch.ones(1), torch.ones(1), profile=name)


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{")
    with pytest.raises(ProfileError, match="cannot be read as JSON"):
        load_profile(tmp_path / "mine.json")


def test_the_most_specific_line_wins_and_is_known(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    mine = {
        "limits": {"rmse_ratio": 3, "cosine": 0.98},
        "dtypes": {"float16": {"rmse_ratio": 4}},
        "apis": {"exp": {"rmse_ratio": 5, "dtypes": {"float16": {"rmse_ratio": 6}}}},
    }
    path.write_text(json.dumps(mine))
    profile = load_profile(path)
    wanted = {
        ("Torch.exp.0", "float16"): (6, "exp, float16"),
        ("Torch.exp.0", "float32"): (5, ": exp"),
        ("Torch.tanh.0", "float16"): (4, ": float16"),
        ("Torch.tanh.0", "float32"): (3, ": everything"),
    }
    for (api, dtype), (value, line) in wanted.items():
        limits = profile.limits(api, dtype)
        assert limits["rmse_ratio"] == value
        assert limits.lines["rmse_ratio"].endswith(line)
        assert limits["cosine"] == 0.98
        assert limits.lines["rtol"].startswith("default")


def test_an_override_changes_the_verdict(tmp_path: Path) -> None:
    reference = torch.linspace(1, 2, 100)
    device = reference * (1 + 1e-5)
    assert not judge("Torch.mul.0", device, reference)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"apis": {"mul": {"rtol": 1e-4}}}))
    assert judge("Torch.mul.0", device, reference, profile=path)
    path.write_text(json.dumps({"apis": {"mul": {"standard": "benchmark"}}}))
    judged = judge("Torch.mul.0", device, reference, reference.double(), profile=path)
    assert judged.standard == "benchmark"
    assert judged


def test_the_accumulative_standard_is_there_for_who_names_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"apis": {"sum": {"standard": "accumulative error"}}}))
    golden = torch.linspace(2, 3, 100, dtype=torch.float64)
    reference = golden.float()
    assert judge("Torch.sum.0", reference, reference, golden.float().double(), profile=path)
    assert not judge("Torch.sum.0", reference * (1 + 4 * 2.0**-11), reference, golden, profile=path)
    below = reference - 1e-6
    found = judge("Torch.sum.0", below, reference, golden, profile=path)
    assert not found
    assert "eb" in found.message


SHIPPED = [
    ("default", "Torch.exp.0", "float16", "benchmark_atol", 2.0**-16),
    ("msprobe-8.3", "Torch.exp.0", "float16", "benchmark_atol", 1e-16),
    ("msprobe-8.3", "Torch.mul.0", "bfloat16", "small_value_atol", 1e-16),
    ("cann", "Torch.exp.0", "float16", "small_value", 2.0**-11),
    ("cann", "Torch.exp.0", "float32", "max_rel_ratio", 10),
    ("cann", "Functional.embedding.0", "float32", "mean_rel_ratio", 1.5),
    ("cann", "Torch.sum.0", "float32", "rmse_ratio", 1.2),
    ("cann", "NPU.npu_rms_norm.0", "bfloat16", "max_rel_ratio", 2),
]


@pytest.mark.parametrize("case", SHIPPED, ids=lambda case: f"{case[0]} {case[1]} {case[3]}")
def test_shipped_limits(case: tuple) -> None:
    name, api, dtype, limit, value = case
    assert load_profile(name).limits(api, dtype)[limit] == value


def test_descriptions_name_the_deciding_line() -> None:
    (found,) = describe_standard("Torch.sum.0", "cann")
    assert found.standard == "benchmark"
    lines = {(line.dtype, line.name): line for line in found.limits}
    assert lines["float32", "rmse_ratio"].decided_by == "cann: sum"
    assert lines["float32", "min_err"].decided_by == "default: float32"
    assert "rmse_ratio" in str(found)
    assert len(describe_standard()) == 6

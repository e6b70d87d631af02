"""Known differences: what an entry covers, what it never covers, how it is counted, and what a wrong list is told."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from batch_spools import add_call, fill
from click.testing import CliRunner, Result
from processes import rows_of

from cli import main
from spool import Bundle, ConfigError
from spool_reader.config import read_config
from spool_reader.device import Device
from spool_reader.judging import Judge, JudgeOptions
from spool_reader.known import read_known

ENTRY: dict[str, Any] = {
    "api": "add",
    "dtype": "float32",
    "limit": {"atol": 0.02},
    "reason": "the device adds a little",
    "until": "torch 2.14",
}
LABEL = "add float32: the device adds a little"


def listed(folder: Path, *entries: dict[str, Any]) -> Path:
    path = folder / "known.json"
    path.write_text(json.dumps({"known": list(entries)}), encoding="utf-8")
    return path


def off(by: Any = 0.01, **more: Any) -> Bundle:
    return add_call(0, 0, 1, off=by, **more)


def in_two_outputs(first: float, second: float) -> Bundle:
    x = torch.tensor([1.0, 2.0, 4.0, 8.0])
    halves = tuple(part + delta for part, delta in zip(x.chunk(2), (first, second), strict=True))
    return _like(off(), "Torch.chunk.0", (x, 2), halves)


def of_another_shape() -> Bundle:
    x = torch.ones(3)
    return _like(off(), "Torch.add.1", (x, x), torch.full((4,), 2.0))


def of_indices() -> Bundle:
    return _like(off(), "Torch.argsort.1", (torch.tensor([3.0, 1.0, 2.0]),), torch.tensor([1, 2, 2]))


def _like(bundle: Bundle, api: str, args: Any, result: Any) -> Bundle:
    header = bundle.header
    fields = ("session", "rank", "step", "seq", "phase", "context", "producer", "time")
    return Bundle.build(
        api=api, args=args, kwargs={}, result=result, **{name: getattr(header, name) for name in fields}
    )


# name: (bundle, entry, verdict; an expired entry leaves an error)
COVERED: dict[str, tuple[Bundle, dict[str, Any], str]] = {
    "within the absolute limit": (off(), {}, "known"),
    "past the absolute limit": (off(), {"limit": {"atol": 0.001}}, "error"),
    "within the relative limit": (off(), {"limit": {"rtol": 0.02}}, "known"),
    "within one limit and past another": (off(), {"limit": {"atol": 0.02, "rtol": 1e-4}}, "error"),
    "each failed check has its limit": (off(), {"limit": {"rel_err_share": 1, "max_abs_err": 0.02}}, "known"),
    "a failed check has no limit": (off(), {"limit": {"rel_err_share": 1}}, "error"),
    "a limit of what did not fail": (off(), {"limit": {"ulp_share": 1}}, "error"),
    "name with its type": (off(), {"api": "Torch.add"}, "known"),
    "name with its number": (off(), {"api": "Torch.add.1"}, "known"),
    "name of another call": (off(), {"api": "Torch.add.2"}, "error"),
    "part of a name": (off(), {"api": "ad"}, "error"),
    "any type": (off(), {"dtype": "any"}, "known"),
    "another type": (off(), {"dtype": "float16"}, "error"),
    "torch's own spelling of a type": (off(), {"dtype": "torch.float32"}, "known"),
    "version not reached": (off(torch_version="2.13.1+cpu"), {}, "known"),
    "version reached": (off(torch_version="2.14.0a0"), {}, "expired"),
    "version passed": (off(torch_version="3.0"), {}, "expired"),
    "version in fewer numbers": (off(torch_version="2.14"), {"until": "torch 2.14.0"}, "expired"),
    "no end": (off(torch_version="99"), {"until": None}, "known"),
    "version of spool-check, which the bundle does not tell": (off(), {"until": "spool-check 0.1"}, "known"),
    "nan": (off(math.nan), {"limit": {"atol": 1e300}}, "error"),
    "infinite": (off(math.inf), {"limit": {"atol": 1e300}}, "error"),
    "shape": (of_another_shape(), {"limit": {"atol": 1e300}}, "error"),
    "indices": (of_indices(), {"api": "argsort", "dtype": "int64", "limit": {"error_rate": 0.7}}, "known"),
    "too many indices": (of_indices(), {"api": "argsort", "dtype": "int64", "limit": {"error_rate": 0.1}}, "error"),
    "both outputs": (in_two_outputs(0.01, 0.01), {"api": "chunk"}, "known"),
    "one output of two": (in_two_outputs(0.01, 0.5), {"api": "chunk"}, "error"),
    "nothing wrong": (off(0.0), {}, "pass"),
}


@pytest.mark.parametrize("name", COVERED)
def test_what_an_entry_covers(name: str, tmp_path: Path) -> None:
    bundle, changes, said = COVERED[name]
    verdict = "error" if said == "expired" else said
    known = read_known(listed(tmp_path, {**ENTRY, **changes}))
    row = Judge(Device(), JudgeOptions(known=known)).row(bundle)
    plain = Judge(Device(), JudgeOptions()).row(bundle)
    assert row["verdict"] == verdict, row["message"]
    assert plain["verdict"] == ("pass" if verdict == "pass" else "error")
    kept = ("status", "standard", "standard_status", "mode")
    assert [row[name] for name in kept] == [plain[name] for name in kept], "the standard's own word is never changed"
    assert bool(row.get("known")) == (verdict == "known")
    assert bool(row.get("known_expired")) == (said == "expired")
    if verdict == "known":
        assert plain["message"] in row["message"]


def run(*words: Any) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_known_differences_are_counted_and_shown_everywhere(tmp_path: Path) -> None:
    bundles = [add_call(0, 0, seq, off=0.01 if seq < 3 else 0.0) for seq in range(5)]
    bundles.append(add_call(0, 0, 5, off=0.01, torch_version="2.14.0", dtype=torch.float16))
    fill(tmp_path / "spool", bundles)
    late = {**ENTRY, "dtype": "float16", "limit": {"atol": 0.1}, "reason": "half"}
    unused = {**ENTRY, "api": "softmax", "reason": "fixed long ago"}
    path = listed(tmp_path, ENTRY, late, unused)
    done = run("reprocess", tmp_path / "spool", "-o", tmp_path / "out", "--workers", "0", "--known", path)
    assert done.exit_code == 1, done.output
    assert "1 error, 3 known, 2 pass, 1 known differences unused, 1 known differences expired" in done.output
    assert f"known: 3 calls, {LABEL}" in done.output
    assert "which 1 calls still show: add float16: half" in done.output
    assert "no call showed: softmax float32: fixed long ago" in done.output

    [details] = (tmp_path / "out").glob("accuracy_checking_details_*.csv")
    with details.open(encoding="utf-8-sig", newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["Verdict"] for row in table].count("known") == 3
    assert {row["Status"] for row in table} <= {"pass", "warning", "error", "SKIP"}
    assert {row["Status"] for row in table if row["Verdict"] == "known"} <= {"error", "pass", "warning"}

    report = json.loads(run("report", tmp_path / "out", "--format", "json").stdout)["summary"]
    assert report["verdicts"] == {"known": 3, "pass": 2, "error": 1}
    assert report["known"] == {LABEL: 3}
    assert report["known_expired"] == {"add float16: half": 1}


def test_a_run_with_known_differences_alone_has_passed(tmp_path: Path) -> None:
    fill(tmp_path / "spool", [add_call(0, 0, seq, off=0.01) for seq in range(2)])
    words = ("-o", tmp_path / "out", "--workers", "1", "--known", listed(tmp_path, ENTRY))
    done = run("reprocess", tmp_path / "spool", *words, "--save-errors", tmp_path / "saved", "--json")
    assert done.exit_code == 0, done.output
    assert [row["known"] for row in rows_of(tmp_path / "out")] == [[LABEL]] * 2
    assert not (tmp_path / "saved").exists()


def test_the_configuration_file_names_the_list(tmp_path: Path) -> None:
    config = {
        "task": "run_ut",
        "run_ut": {"is_online": True, "nfs_path": str(tmp_path)},
        "spool": {"known": "known.json"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_config(tmp_path / "config.json").keywords()["known"] == "known.json"


WRONG: dict[str, tuple[Any, str]] = {
    "no object": ([], "the whole file must be one JSON object"),
    "no list": ({"known": {}}, "known is {}; it must be a list of objects"),
    "missing list": ({}, "known is missing"),
    "misspelt list": ({"knwon": []}, 'did you mean "known"'),
    "entry is no object": ({"known": [3]}, "known[0] is 3; it must be an object"),
    "misspelt key": ({"known": [{**ENTRY, "limits": {}}]}, 'known[0].limits: unknown key; did you mean "limit"'),
    "no reason": ({"known": [{**ENTRY, "reason": " "}]}, "known[0].reason is ' '; it must be one sentence"),
    "no end said": ({"known": [{k: v for k, v in ENTRY.items() if k != "until"}]}, "known[0].until is missing"),
    "api": ({"known": [ENTRY, {**ENTRY, "api": "a b"}]}, "known[1].api is 'a b'"),
    "dtype": ({"known": [{**ENTRY, "dtype": "bfloat61"}]}, 'did you mean "bfloat16"'),
    "limit without names": ({"known": [{**ENTRY, "limit": 2.0}]}, "known[0].limit is 2.0; it must be an object"),
    "empty limit": ({"known": [{**ENTRY, "limit": {}}]}, "known[0].limit is {}"),
    "limit's name": ({"known": [{**ENTRY, "limit": {"atoll": 1}}]}, 'did you mean "atol"'),
    "limit's number": ({"known": [{**ENTRY, "limit": {"atol": -1}}]}, "atol is -1"),
    "limit's kind": ({"known": [{**ENTRY, "limit": {"atol": "1"}}]}, "atol is '1'"),
    "until without a name": ({"known": [{**ENTRY, "until": "2.9"}]}, "known[0].until is '2.9'"),
    "until of something else": ({"known": [{**ENTRY, "until": "numpy 2"}]}, "a version of torch or spool-check"),
    "twice": ({"known": [ENTRY, ENTRY]}, "known[1] is about add float32, as known[0] is; make one entry of both"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_list_is_told_where_and_what_to_do(name: str, tmp_path: Path) -> None:
    value, words = WRONG[name]
    path = tmp_path / "known.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_known(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_list_that_is_missing_ends_the_run_before_it_starts(tmp_path: Path) -> None:
    fill(tmp_path / "spool", [add_call(0, 0, 0)])
    done = run("reprocess", tmp_path / "spool", "-o", tmp_path / "out", "--known", tmp_path / "none.json")
    assert done.exit_code == 2
    assert "none.json: cannot be read" in done.output
    assert not (tmp_path / "out").exists()

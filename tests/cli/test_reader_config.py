"""The judging side's configuration file: what it means, and what each mistake is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spool import ConfigError
from spool_reader.config import read_config

GOOD: dict[str, Any] = {
    "task": "run_ut",
    "run_ut": {
        "white_list": [],
        "black_list": [],
        "error_data_path": "./",
        "is_online": True,
        "nfs_path": "/nfs/xxx/data",
        "host": "",
        "port": -1,
        "rank_list": [0],
        "tls_path": "",
    },
}


def changed(top: dict[str, Any] | None = None, **run_ut: Any) -> dict[str, Any]:
    return {**GOOD, "run_ut": {**GOOD["run_ut"], **run_ut}, **(top or {})}


def written(folder: Path, value: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


URLS: dict[str, tuple[dict[str, Any], str]] = {
    "shared storage": (changed(), "/nfs/xxx/data"),
    "nfs_path wins over host and port": (changed(host="10.0.0.1", port=59208), "/nfs/xxx/data"),
    "host and port": (changed(nfs_path="", host="127.0.0.1", port=59208), "tcp://127.0.0.1:59208"),
}


@pytest.mark.parametrize("case", sorted(URLS))
def test_where_the_bundles_come_from(case: str, tmp_path: Path) -> None:
    value, url = URLS[case]
    assert read_config(written(tmp_path, value)).url == url


def test_the_sample_of_the_ecosystem_means_what_it_says(tmp_path: Path) -> None:
    keywords = read_config(written(tmp_path, GOOD)).keywords()
    assert keywords["ranks"] == (0,)
    assert keywords["white_list"] == keywords["black_list"] == ()
    assert keywords["save_errors"].name.startswith("ut_error_data")


def test_the_rank_list_defaults_to_rank_0_and_takes_ranges(tmp_path: Path) -> None:
    value = changed()
    del value["run_ut"]["rank_list"]
    assert read_config(written(tmp_path, value)).ranks == (0,)
    assert read_config(written(tmp_path, changed(rank_list=[0, "2-4"]))).ranks == (0, 2, 3, 4)


def test_own_keys_stand_in_one_object(tmp_path: Path) -> None:
    own = {"workers": 3, "profile": "cann", "stale_after": 5, "when_full": "drop"}
    settings = read_config(written(tmp_path, changed({"spool": own})))
    assert settings.keywords()["workers"] == 3
    assert settings.keywords()["profile"] == "cann"
    assert settings.keywords()["stale_after"] == 5.0
    assert settings.options.when_full == "drop"


MISTAKES: dict[str, tuple[Any, list[str]]] = {
    "a list": ([], ["config.json", "object"]),
    "no task": ({"run_ut": {}}, ["task", "missing"]),
    "the training side's task": ({**GOOD, "task": "tensor"}, ["task", "tensor", "run_ut"]),
    "no run_ut": ({"task": "run_ut"}, ["run_ut", "missing"]),
    "misspelt key": (changed(nfs_pth="/x"), ["run_ut.nfs_pth", 'did you mean "nfs_path"']),
    "misspelt top key": (changed({"tsk": 1}), ["tsk", 'did you mean "task"']),
    "misspelt own key": (changed({"spool": {"worker": 1}}), ["spool.worker", 'did you mean "workers"']),
    "wrong type": (changed(is_online="yes"), ["run_ut.is_online", "'yes'", "true or false"]),
    "port out of range": (changed(port=70000), ["run_ut.port", "70000", "65535"]),
    "port as text": (changed(port="59208"), ["run_ut.port", "'59208'"]),
    "negative rank": (changed(rank_list=[-1]), ["run_ut.rank_list", "-1"]),
    "empty rank list": (changed(rank_list=[]), ["run_ut.rank_list", "[0]"]),
    "rank list as number": (changed(rank_list=0), ["run_ut.rank_list"]),
    "white list as text": (changed(white_list="conv1d"), ["run_ut.white_list", "conv1d"]),
    "offline": (changed(is_online=False), ["is_online", "reprocess"]),
    "nowhere to look": (changed(nfs_path=""), ["nfs_path", "host"]),
    "negative seconds": (changed({"spool": {"stale_after": -1}}), ["spool.stale_after", "-1"]),
    "infinite seconds": (changed({"spool": {"call_timeout": float("inf")}}), ["spool.call_timeout"]),
    "run_ut is no object": ({"task": "run_ut", "run_ut": 1}, ["run_ut", "object"]),
}


@pytest.mark.parametrize("case", sorted(MISTAKES))
def test_a_mistake_is_told_with_place_value_and_rule(case: str, tmp_path: Path) -> None:
    value, told = MISTAKES[case]
    with pytest.raises(ConfigError) as caught:
        read_config(written(tmp_path, value))
    for part in told:
        assert part in str(caught.value)


SAMPLES = Path(__file__).resolve().parents[2] / "sample_configs"


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.glob("gpu_*.json")))
def test_the_sample_configs_are_valid_pairs(name: str) -> None:
    gpu = read_config(SAMPLES / name)
    npu = json.loads((SAMPLES / name.replace("gpu_", "npu_")).read_text(encoding="utf-8"))
    assert gpu.url == "/nfs/xxx/data" if "shared" in name else gpu.url.startswith("tcp://")
    assert npu["tensor"]["online_run_ut"] is True
    assert npu["tensor"]["nfs_path"] == ("/nfs/xxx/data" if "shared" in name else "")
    assert npu["rank"] == list(gpu.ranks)


def test_there_is_a_pair_for_each_way_of_transport() -> None:
    assert len(list(SAMPLES.glob("gpu_*.json"))) == len(list(SAMPLES.glob("npu_*.json"))) == 3

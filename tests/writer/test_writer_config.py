"""The training side's configuration: files and keywords, what they mean, and what each mistake is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spool import ConfigError, SpoolUnavailable
from spool_check import PrecisionDebugger
from spool_writer.config import read_settings, settings_of

GOOD: dict[str, Any] = {
    "task": "tensor",
    "dump_path": "./dump_path",
    "rank": [0],
    "step": [0],
    "level": "L1",
    "tensor": {
        "scope": [],
        "list": [],
        "online_run_ut": True,
        "nfs_path": "/nfs/xxx/data",
        "host": "",
        "port": -1,
        "tls_path": "",
    },
}


def changed(top: dict[str, Any] | None = None, **tensor: Any) -> dict[str, Any]:
    return {**GOOD, "tensor": {**GOOD["tensor"], **tensor}, **(top or {})}


def written(folder: Path, value: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_the_sample_of_the_ecosystem(tmp_path: Path) -> None:
    settings = read_settings(written(tmp_path, GOOD))
    assert (settings.url, settings.rank, settings.step) == ("/nfs/xxx/data", (0,), (0,))


URLS: dict[str, tuple[dict[str, Any], str | None]] = {
    "nfs_path wins": (changed(host="10.0.0.1", port=59208), "/nfs/xxx/data"),
    "host and port": (changed(nfs_path="", host="10.0.0.1", port=59208), "tcp://10.0.0.1:59208"),
    "off": (changed(online_run_ut=False), None),
}


@pytest.mark.parametrize("case", sorted(URLS))
def test_where_the_bundles_go(case: str, tmp_path: Path) -> None:
    value, url = URLS[case]
    assert read_settings(written(tmp_path, value)).url == url


def test_ranges_and_own_keys(tmp_path: Path) -> None:
    value = changed({"rank": ["0-3", 7], "step": [], "spool": {"when_full": "drop", "queue_bytes": 2**20}})
    settings = read_settings(written(tmp_path, value))
    assert settings.rank == (0, 1, 2, 3, 7)
    assert settings.step == ()
    assert settings.options.when_full == "drop"
    assert settings.queue_bytes == 2**20


MISTAKES: dict[str, tuple[Any, list[str]]] = {
    "misspelt key": (changed(nfs_pth="/x"), ["config.json", "tensor.nfs_pth", 'did you mean "nfs_path"']),
    "misspelt own key": (changed({"spool": {"when_ful": "drop"}}), ["spool.when_ful", 'did you mean "when_full"']),
    "no task": ({"tensor": {}}, ["task", "missing", "tensor"]),
    "the judging side's task": (changed({"task": "run_ut"}), ["task", "run_ut"]),
    "another level": (changed({"level": "L0"}), ["level", "L0", "L1"]),
    "rank as text": (changed({"rank": "0"}), ["rank", "'0'", "list"]),
    "negative step": (changed({"step": [-1]}), ["step", "-1"]),
    "boolean step": (changed({"step": [True]}), ["step", "True"]),
    "bad range": (changed({"step": ["4-2"]}), ["step", "4-2"]),
    "switch as text": (changed(online_run_ut="true"), ["tensor.online_run_ut", "'true'"]),
    "unknown policy": (changed({"spool": {"when_full": "wait"}}), ["spool.when_full", "wait", "block"]),
    "queue too small": (changed({"spool": {"queue_bytes": 1}}), ["spool.queue_bytes", "1048576"]),
    "nowhere to write": (changed(nfs_path=""), ["nfs_path", "host"]),
    "tensor is no object": (changed({"tensor": 3}), ["tensor", "object"]),
}


@pytest.mark.parametrize("case", sorted(MISTAKES))
def test_a_mistake_is_told_with_place_value_and_rule(case: str, tmp_path: Path) -> None:
    value, told = MISTAKES[case]
    with pytest.raises(ConfigError) as caught:
        PrecisionDebugger(written(tmp_path, value))
    for part in told:
        assert part in str(caught.value)


KEYWORDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "neither": ({}, ["configuration file", "spool="]),
    "both": ({"config_path": "x.json", "spool": "/x"}, ["either"]),
    "misspelt": ({"spool": "/tmp", "stpe": [0]}, ["stpe", 'did you mean "step"']),
    "wrong type": ({"spool": "/tmp", "rank": 0}, ["rank", "list"]),
    "unknown API": ({"spool": "/tmp", "white_list": ["matmull"]}, ["matmull", 'did you mean "matmul"']),
    "scope of no full name": ({"spool": "/tmp", "scope": ["matmul"]}, ["scope", "matmul", "Torch.matmul.0"]),
    "scope of three": ({"spool": "/tmp", "scope": ["Torch.a.0", "Torch.b.0", "Torch.c.0"]}, ["scope", "3"]),
    "empty spool": ({"spool": ""}, ["empty"]),
    "unknown transport": ({"spool": "ftp://x"}, ["ftp://x"]),
}


@pytest.mark.parametrize("case", sorted(KEYWORDS))
def test_a_mistake_in_keywords(case: str) -> None:
    keywords, told = KEYWORDS[case]
    with pytest.raises(ConfigError) as caught:
        PrecisionDebugger(**keywords)
    for part in told:
        assert part in str(caught.value)


def test_tuples_and_ranges_are_lists_too() -> None:
    settings = settings_of("/x", {"rank": (0, 1), "step": range(3), "list": ["relu"]})
    assert (settings.rank, settings.step, settings.list) == ((0, 1), (0, 1, 2), ("relu",))


def test_a_spool_whose_parent_is_missing_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpoolUnavailable, match="mounted"):
        PrecisionDebugger(spool=tmp_path / "not" / "there")


SAMPLES = Path(__file__).resolve().parents[2] / "sample_configs"


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.glob("npu_*.json")))
def test_the_sample_configs_are_valid(name: str) -> None:
    url = read_settings(SAMPLES / name).url
    assert url == "/nfs/xxx/data" if "shared" in name else str(url).startswith("tcp://")

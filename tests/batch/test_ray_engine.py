"""Judging on a local Ray cluster: the rows of the local engine, dead workers, dead readers, and clusters that are not there."""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_spools import add_call, fill
from processes import ROOT, environment, free_port, key_of, left_in, rows_of

from spool import ConfigError
from spool_reader.watch import reprocess

needs_ray = [
    pytest.mark.ray,
    pytest.mark.xdist_group("ray"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed; `make ray` installs it"),
]

POISON = """
import os, pathlib, time
from fused_ops import register

@register("npu_ends_it(Tensor x, Tensor y) -> Tensor", source="test")
def ends_it(precision, x, y):
    os._exit(7)

@register("npu_ends_it_once(Tensor x, Tensor y) -> Tensor", source="test")
def ends_it_once(precision, x, y):
    mark = pathlib.Path(os.environ["RAY_TEST_MARK"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)
    return x + y

@register("npu_takes_long(Tensor x, Tensor y) -> Tensor", source="test")
def takes_long(precision, x, y):
    time.sleep(3600)
"""


class Cluster:
    """A cluster of this host, with a token of its own."""

    def __init__(self, folder: Path) -> None:
        (folder / "ray_poison.py").write_text(POISON, encoding="utf-8")
        self.env = {
            **environment(),
            "PYTHONPATH": f"{ROOT}:{folder}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TEST_MARK": str(folder / "mark"),
        }
        script = ROOT / "tests" / "support" / "ray_holder.py"
        self._holder = subprocess.Popen(
            [sys.executable, str(script)],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        assert self._holder.stdout is not None
        self.address = self._holder.stdout.readline().strip()
        assert self.address

    def start(self, spool: Path, out: Path, *words: Any, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "spool_check", "reprocess", str(spool), "--out", str(out), "--engine", "ray"]
        command += ["--address", self.address, "--device", "cpu", *map(str, words)]
        return subprocess.Popen(
            command, env=env or self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )

    def run(self, *words: Any, **more: Any) -> tuple[int, str]:
        process = self.start(*words, **more)
        out, talk = process.communicate(timeout=200)
        return process.returncode, out + talk

    def close(self) -> None:
        self._holder.communicate(timeout=60)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("ray"))
    yield found
    found.close()


def without_times(folder: Path) -> dict[Any, dict[str, Any]]:
    return {key_of(row): {**row, "timings": None} for row in rows_of(folder)}


@pytest.mark.parametrize("workers", [None, 2])
def test_the_rows_are_those_of_the_local_engine(workers: int | None, cluster: Cluster, tmp_path: Path) -> None:
    calls = [add_call(rank, 0, seq, off=0.5 * (seq == 3)) for rank in range(3) for seq in range(40)]
    fill(tmp_path / "a", calls)
    fill(tmp_path / "b", calls)
    code, said = cluster.run(tmp_path / "a", tmp_path / "ray", *(() if workers is None else ("--workers", workers)))
    assert code == 1, said
    assert "judging" in said
    assert "cpu (Ray)" in said
    reprocess(tmp_path / "b", out=tmp_path / "local", workers=0, device="cpu")
    assert without_times(tmp_path / "ray") == without_times(tmp_path / "local")
    assert len(rows_of(tmp_path / "ray")) == len(calls)
    assert left_in(tmp_path / "a") == []


def test_a_worker_that_dies_costs_its_bundle_an_attempt_and_no_other(cluster: Cluster, tmp_path: Path) -> None:
    calls = [add_call(0, 0, seq) for seq in range(60)]
    calls[17] = add_call(0, 0, 17, api="NPU.npu_ends_it_once.0")
    calls[33] = add_call(0, 0, 33, api="NPU.npu_ends_it.0")
    fill(tmp_path / "spool", calls)
    code, said = cluster.run(tmp_path / "spool", tmp_path / "out", "--workers", 2, "--import", "ray_poison")
    assert code == 1, said
    assert sorted(row["seq"] for row in rows_of(tmp_path / "out")) == [seq for seq in range(60) if seq != 33]
    assert {row["verdict"] for row in rows_of(tmp_path / "out")} == {"pass"}
    [left] = left_in(tmp_path / "spool")
    assert left.startswith("quarantine/rank0/step0/00000033.NPU.npu_ends_it.0")


def test_a_call_that_does_not_end_is_ended(cluster: Cluster, tmp_path: Path) -> None:
    fill(tmp_path / "spool", [add_call(0, 0, 0, api="NPU.npu_takes_long.0"), *(add_call(0, 0, seq) for seq in (1, 2))])
    words = ("--workers", 1, "--import", "ray_poison", "--call-timeout", 2)
    code, said = cluster.run(tmp_path / "spool", tmp_path / "out", *words)
    assert code == 1, said
    assert "took longer than 2 s" in said
    assert sorted(row["seq"] for row in rows_of(tmp_path / "out")) == [1, 2]
    assert len(left_in(tmp_path / "spool")) == 1


def test_a_reader_that_is_killed_is_followed_by_one_that_ends_its_work(cluster: Cluster, tmp_path: Path) -> None:
    calls = [add_call(rank, 0, seq) for rank in range(3) for seq in range(400)]
    fill(tmp_path / "spool", calls)
    process = cluster.start(tmp_path / "spool", tmp_path / "out", "--workers", 1)
    try:
        while not rows_of(tmp_path / "out") and process.poll() is None:
            time.sleep(0.02)
    finally:
        process.kill()
        process.communicate()
    assert len(left_in(tmp_path / "spool")) > 0, "it was too quick to be killed on the way"
    code, said = cluster.run(tmp_path / "spool", tmp_path / "out", "--workers", 2)
    assert code == 0, said
    assert len({key_of(row) for row in rows_of(tmp_path / "out")}) == len(rows_of(tmp_path / "out")) == len(calls)
    assert left_in(tmp_path / "spool") == []


def test_a_first_request_to_stop_finishes_what_is_in_hand(cluster: Cluster, tmp_path: Path) -> None:
    calls = [add_call(rank, 0, seq) for rank in range(3) for seq in range(400)]
    fill(tmp_path / "spool", calls)
    process = cluster.start(tmp_path / "spool", tmp_path / "out", "--workers", 1)
    while not rows_of(tmp_path / "out") and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, said = process.communicate(timeout=100)
    assert "stopped before the end" in out, out + said
    assert len(rows_of(tmp_path / "out")) + len(left_in(tmp_path / "spool")) == len(calls)


def test_a_module_that_the_cluster_lacks_is_named(cluster: Cluster, tmp_path: Path) -> None:
    fill(tmp_path / "spool", [add_call(0, 0, 0)])
    code, said = cluster.run(tmp_path / "spool", tmp_path / "out", "--import", "not_on_the_nodes")
    assert code == 3
    assert "no worker starts on the Ray cluster" in said
    assert "not_on_the_nodes" in said
    assert len(left_in(tmp_path / "spool")) == 1


def test_a_device_that_the_cluster_lacks_is_named(cluster: Cluster, tmp_path: Path) -> None:
    fill(tmp_path / "spool", [add_call(0, 0, 0)])
    code, said = cluster.run(tmp_path / "spool", tmp_path / "out", "--device", "npu")
    assert code == 3
    assert "device = 'npu': the Ray cluster has no NPU" in said


def test_a_client_without_the_cluster_s_token_is_told_so(cluster: Cluster, tmp_path: Path) -> None:
    fill(tmp_path / "spool", [add_call(0, 0, 0)])
    env = {**cluster.env, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    code, said = cluster.run(tmp_path / "spool", tmp_path / "out", env=env)
    assert code == 3, said
    assert "no Ray cluster could be joined" in said
    assert "RAY_AUTH_TOKEN" in said
    assert "Traceback" not in said
    assert len(left_in(tmp_path / "spool")) == 1


for _name, _test in list(globals().items()):
    if _name.startswith("test_"):
        for _mark in needs_ray:
            globals()[_name] = _mark(globals()[_name])


NO_CLUSTER = {
    "nobody listens": ("127.0.0.1:{port}", 3, "does not answer: Connection refused"),
    "client, nobody listens": ("ray://127.0.0.1:{port}", 3, "does not answer: Connection refused"),
    "unknown host": ("no-such-host.invalid:6379", 3, "does not answer"),
    "no port": ("localhost", 2, "no address of a Ray cluster; use HOST:PORT, ray://HOST:PORT, or auto"),
    "no number": ("localhost:ray", 2, "no address of a Ray cluster"),
}


@pytest.mark.ray
@needs_ray[2]
@pytest.mark.parametrize("name", NO_CLUSTER)
def test_an_address_that_does_not_answer(name: str, tmp_path: Path) -> None:
    address, code, words = NO_CLUSTER[name]
    fill(tmp_path / "spool", [add_call(0, 0, 0)])
    command = [sys.executable, "-m", "spool_check", "reprocess", str(tmp_path / "spool"), "-o", str(tmp_path / "out")]
    command += ["--engine", "ray", "--address", address.format(port=free_port())]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=100, cwd=ROOT, check=False
    )
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(left_in(tmp_path / "spool")) == 1


@pytest.mark.slow
@pytest.mark.ray
@needs_ray[2]
def test_something_else_that_answers_is_no_cluster(tmp_path: Path) -> None:
    fill(tmp_path / "spool", [add_call(0, 0, 0)])
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = [
            sys.executable,
            "-m",
            "spool_check",
            "reprocess",
            str(tmp_path / "spool"),
            "-o",
            str(tmp_path / "out"),
        ]
        command += ["--engine", "ray", "--address", address]
        env = {**environment(), "RAY_USAGE_STATS_ENABLED": "0"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=250, cwd=ROOT, check=False)
    assert done.returncode == 3, done.stderr
    assert "no Ray cluster could be joined" in done.stderr


OPTIONS = {
    "engine": ({"engine": "spark"}, "engine = 'spark': must be local or ray"),
    "address without ray": ({"address": "h:1"}, "is that of a Ray cluster; add --engine ray"),
    "a device by number": ({"engine": "ray", "device": "cuda:1"}, "Ray gives each worker its device"),
    "no workers": ({"engine": "ray", "workers": 0}, "which engine = 'ray' does not"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_make_no_sense_are_named(name: str, tmp_path: Path) -> None:
    options, words = OPTIONS[name]
    fill(tmp_path / "spool", [])
    with pytest.raises(ConfigError, match=words):
        reprocess(tmp_path / "spool", out=tmp_path / "out", **options)


def test_a_spool_in_memory_is_not_for_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Ray's workers need a directory they share"):
        reprocess("memory:", out=tmp_path / "out", engine="ray")


def test_without_ray_the_remedy_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "spool", [add_call(0, 0, 0)])
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "ray.py").write_text("raise ImportError('not here')\n", encoding="utf-8")
    command = [sys.executable, "-m", "spool_check", "reprocess", str(tmp_path / "spool"), "-o", str(tmp_path / "out")]
    env = {**environment(), "PYTHONPATH": os.pathsep.join((str(tmp_path / "hidden"), str(ROOT)))}
    done = subprocess.run(
        [*command, "--engine", "ray"], env=env, capture_output=True, text=True, timeout=100, cwd=ROOT, check=False
    )
    assert done.returncode == 2
    assert "pip install 'spool-check[ray]'" in done.stderr

"""What a training script may do with the debugger, rightly or wrongly, and that training goes on in any case."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import ROOT, environment
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from spool import Bundle, open_spool
from spool_check import PrecisionDebugger

x = torch.arange(6.0).reshape(2, 3)


def names(bundles: list[Bundle]) -> list[str]:
    return [f"{bundle.header.step}:{bundle.header.api}" for bundle in bundles]


def session(spool: Path) -> dict[str, Any]:
    [path] = spool.glob("rank*/session-*.json")
    return dict(json.loads(path.read_text()))


def files(spool: Path) -> list[str]:
    return sorted(path.name for path in spool.rglob("*.safetensors"))


FILTERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({}, ["add.0", "mul.0", "relu.0", "add.1", "mul.1", "relu.1"]),
    "list of a full name": ({"list": ["Tensor.mul.1"]}, ["mul.1"]),
    "list of a full name with direction": ({"list": ["Tensor.mul.1.forward"]}, ["mul.1"]),
    "list of a part": ({"list": ["rel"]}, ["relu.0", "relu.1"]),
    "scope": ({"scope": ["Tensor.relu.0", "Tensor.mul.1"]}, ["relu.0", "add.1", "mul.1"]),
    "scope of one": ({"scope": ["Tensor.add.1"]}, ["add.1"]),
    "scope and list": ({"scope": ["Tensor.relu.0", "Tensor.mul.1"], "list": ["add"]}, ["add.1"]),
    "white list": ({"white_list": ["mul"]}, ["mul.0", "mul.1"]),
    "black list": ({"black_list": ["mul"]}, ["add.0", "relu.0", "add.1", "relu.1"]),
    "both lists, nothing shared": ({"white_list": ["mul"], "black_list": ["add"]}, ["mul.0", "mul.1"]),
    "both lists, one shared": ({"white_list": ["mul", "add"], "black_list": ["add"]}, ["mul.0", "mul.1"]),
}


@pytest.mark.parametrize("case", sorted(FILTERS))
def test_filters(case: str, record: Any) -> None:
    keywords, wanted = FILTERS[case]

    def program(debugger: PrecisionDebugger) -> None:
        for _ in range(2):
            (x + 1).mul(2).relu()

    assert [bundle.header.api.removeprefix("Tensor.") for bundle in record(program, **keywords)] == wanted


def test_recording_is_on_between_start_and_stop(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(spool=tmp_path / "spool")
    x.abs()
    debugger.start()
    x.sin()
    debugger.stop()
    x.cos()
    debugger.step()
    x.tan()
    debugger.start()
    x.exp()
    debugger.stop()
    debugger.close()
    assert files(tmp_path / "spool") == ["00000000.Tensor.exp.0.safetensors", "00000000.Tensor.sin.0.safetensors"]
    assert session(tmp_path / "spool")["state"] == "closed"


def _double_start(debugger: PrecisionDebugger) -> None:
    debugger.start()
    debugger.start()
    x.abs()
    debugger.stop()
    debugger.stop()
    x.sin()


def _stop_first(debugger: PrecisionDebugger) -> None:
    debugger.stop()
    debugger.start()
    x.abs()


def _after_close(debugger: PrecisionDebugger) -> None:
    debugger.start()
    x.abs()
    debugger.close()
    debugger.close()
    debugger.start()
    x.sin()
    debugger.step()


MISUSE: dict[str, Callable[[PrecisionDebugger], None]] = {
    "start twice": _double_start,
    "stop without start": _stop_first,
    "use after close": _after_close,
}


@pytest.mark.parametrize("case", sorted(MISUSE))
def test_misuse_is_harmless(case: str, tmp_path: Path) -> None:
    debugger = PrecisionDebugger(spool=tmp_path / "spool")
    MISUSE[case](debugger)
    debugger.close()
    assert files(tmp_path / "spool") == ["00000000.Tensor.abs.0.safetensors"]


def test_steps_that_are_not_selected_are_not_recorded_and_the_session_ends_after_the_last(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    states = []
    with PrecisionDebugger(spool=spool, step=[1, 2]) as debugger:
        for _ in range(5):
            x.abs()
            debugger.step()
            states.append(session(spool)["state"])
    assert sorted(path.parent.name for path in spool.rglob("*.safetensors")) == ["step1", "step2"]
    assert states == ["open", "open", "closed", "closed", "closed"]


def test_a_rank_that_is_not_selected_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    with PrecisionDebugger(spool=tmp_path / "spool", rank=[0]):
        x.abs()
    assert not (tmp_path / "spool").exists()
    with PrecisionDebugger(spool=tmp_path / "spool", rank=[3]):
        x.abs()
    assert [path.parent.parent.name for path in (tmp_path / "spool").rglob("*.safetensors")] == ["rank3"]


def test_an_error_of_the_call_passes_unchanged_and_leaves_no_bundle(tmp_path: Path) -> None:
    with PrecisionDebugger(spool=tmp_path / "spool", strict=True) as debugger:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            torch.matmul(x, x)
        torch.matmul(x, x.T)
    assert files(tmp_path / "spool") == ["00000001.Torch.matmul.1.safetensors"]
    assert debugger.counts()["errors"] == 0


def test_an_exception_in_the_loop_marks_the_session(tmp_path: Path) -> None:
    def loop() -> None:
        with PrecisionDebugger(spool=tmp_path / "spool"):
            x.abs()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    assert session(tmp_path / "spool")["state"] == "failed"
    assert files(tmp_path / "spool") == ["00000000.Tensor.abs.0.safetensors"]


def test_online_checking_that_is_off_says_so_and_does_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = {"task": "tensor", "dump_path": "./d", "tensor": {"online_run_ut": False, "nfs_path": str(tmp_path / "s")}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    with caplog.at_level(logging.WARNING, "spool_check"), PrecisionDebugger(path):
        x.abs()
    assert not (tmp_path / "s").exists()
    assert "online_run_ut" in caplog.text


def test_a_faulty_device_below_the_debugger_is_recorded_as_it_is(record: Any) -> None:
    class Device(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            return result + 1 if func is torch.Tensor.abs else result

    folder_bundles = []
    with Device():
        folder_bundles = record(lambda debugger: x.abs())
    [bundle] = folder_bundles
    assert torch.equal(bundle.args[0], x)
    assert torch.equal(bundle.result, x.abs() + 1)


def test_the_tool_s_own_copies_are_not_seen_by_dispatch_modes(tmp_path: Path) -> None:
    class Counter(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def program() -> list[str]:
        y = x.clone()
        with Counter() as counter:
            y.add_(1).mul(2).t()
        return counter.seen

    bare = program()
    with PrecisionDebugger(spool=tmp_path / "spool", strict=True):
        recorded = program()
    assert recorded == bare


def test_a_default_device_of_the_user_changes_nothing(record: Any) -> None:
    def program(debugger: PrecisionDebugger) -> None:
        with torch.device("meta"):
            x.abs()

    [bundle] = record(program)
    assert torch.equal(bundle.result, x.abs())


def test_each_thread_starts_for_itself_and_numbers_are_shared(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(spool=tmp_path / "spool", strict=True)

    def work() -> None:
        debugger.start()
        for _ in range(50):
            x.abs()
        debugger.stop()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    x.abs()
    for thread in threads:
        thread.join()
    debugger.close()
    assert files(tmp_path / "spool") == [f"{n:08d}.Tensor.abs.{n}.safetensors" for n in range(150)]


def test_a_full_spool_drops_and_counts_and_training_goes_on(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with PrecisionDebugger(spool=spool, when_full="drop", max_pending_bundles=5) as debugger:
        for _ in range(20):
            x.abs()
    counts = debugger.counts()
    assert len(files(spool)) == counts["published"] >= 5
    assert counts["published"] + counts["dropped"] == 20
    assert session(spool)["counts"] == counts


def test_a_spool_that_vanishes_does_not_stop_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = tmp_path / "spool"
    with caplog.at_level(logging.WARNING), PrecisionDebugger(spool=spool) as debugger:
        x.abs()
        assert debugger._publisher is not None
        assert debugger._publisher.drain(10)
        shutil.rmtree(spool)
        (tmp_path / "spool").write_text("no folder any more")
        for _ in range(5):
            x.abs()
    assert debugger.counts()["dropped"] == 5
    assert debugger.counts()["errors"] >= 1


def test_a_forked_child_neither_publishes_nor_closes(tmp_path: Path) -> None:
    program = """
import os, sys, torch, warnings
warnings.simplefilter("ignore")
from spool_check import PrecisionDebugger
x = torch.ones(2)
with PrecisionDebugger(spool=sys.argv[1]) as debugger:
    x.abs()
    child = os.fork()
    if child == 0:
        x.sin()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    x.cos()
"""
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "spool")],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert files(tmp_path / "spool") == ["00000000.Tensor.abs.0.safetensors", "00000001.Tensor.cos.0.safetensors"]
    assert session(tmp_path / "spool")["state"] == "closed"


ENDINGS: dict[str, tuple[str, str]] = {
    "falls off the end": ("", "closed"),
    "exits": ("sys.exit(3)", "closed"),
    "raises": ("raise ValueError('mine')", "closed"),
    "is killed": ("os.kill(os.getpid(), 9)", "open"),
}


@pytest.mark.parametrize("case", sorted(ENDINGS))
def test_how_a_training_ends(case: str, tmp_path: Path) -> None:
    """Without a context manager nobody tells an exception from an end; what counts is that the session is closed."""
    ending, state = ENDINGS[case]
    program = f"""
import os, sys, torch
from spool_check import PrecisionDebugger
debugger = PrecisionDebugger(spool=sys.argv[1])
debugger.start()
torch.ones(2).abs()
{ending}
"""
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "spool")],
        cwd=ROOT, env={k: v for k, v in os.environ.items() if k != "RANK"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert session(tmp_path / "spool")["state"] == state, run.stderr
    if state == "closed":
        assert len(files(tmp_path / "spool")) == 2


@pytest.mark.filterwarnings("ignore")
def test_vmap_and_compiled_regions_are_left_alone(tmp_path: Path) -> None:
    with PrecisionDebugger(spool=tmp_path / "spool", strict=True):
        assert torch.equal(torch.vmap(torch.sin)(x), x.sin())
        compiled = torch.compile(lambda t: t.sin() + 1, backend="eager")
        assert torch.equal(compiled(x), x.sin() + 1)


def test_inference_mode(record: Any) -> None:
    def program(debugger: PrecisionDebugger) -> None:
        with torch.inference_mode():
            x.abs().add_(1)

    plain, written = record(program)
    assert torch.equal(plain.result, x.abs())
    assert torch.equal(written.args[0], x.abs())
    assert torch.equal(written.mutated["args[0]"], x.abs() + 1)


def test_where_the_time_went_is_told(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(spool=tmp_path / "spool")
    assert debugger.stats()["published_bytes"] == 0
    with debugger:
        for _ in range(20):
            torch.ones(100).add(1)
    stats = debugger.stats()
    assert stats["published_bytes"] == 20 * 3 * 400
    assert stats["queued_bytes"] == 0
    assert stats["recording_s"] > 0
    assert stats["publishing_s"] > 0
    assert stats["waiting_s"] == 0


def test_an_error_of_ours_never_reaches_the_training_and_leaves_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise RuntimeError("torch refuses the question")

    monkeypatch.setattr("spool_writer.before.surroundings", refuse)
    with PrecisionDebugger(spool=tmp_path / "spool") as debugger:
        assert torch.ones(2).add(1).tolist() == [2, 2]
    counts = debugger.counts()
    assert counts["seen"] == counts["unreplayable"] == counts["errors"] == 2
    assert counts["dropped"] == 0
    with open_spool(tmp_path / "spool") as spool:
        claim = spool.claim()
        assert claim is not None
        assert "spool-check failed to record it" in str(claim.load().header.skip)


@pytest.mark.parametrize("policy", ["drop", "sample"])
def test_a_dropped_call_is_counted_once(policy: str, tmp_path: Path) -> None:
    options = {"when_full": policy, "max_pending_bundles": 5, "block_timeout": 0.1}
    with PrecisionDebugger(spool=tmp_path / "spool", **options) as debugger:
        for _ in range(10):
            torch.ones(3).add(1)
    counts = debugger.counts()
    assert counts["captured"] == counts["published"] == len(list((tmp_path / "spool").rglob("*.safetensors")))
    assert counts["dropped"] > 0
    assert counts["seen"] == counts["captured"] + counts["unreplayable"] + counts["filtered"] + counts["dropped"] == 20

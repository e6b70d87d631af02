"""Devices by name, and what happens when one has no memory left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from spool import ConfigError
from spool_reader.device import Device, open_device, worker_devices
from spool_reader.judging import Judge, JudgeOptions
from spool_reader.trees import equal_bits

x = torch.tensor([1.0, 2.0])


class Small(Device):
    """A device that has room for a tensor only after `full` tries."""

    def __init__(self, full: int, error: type[Exception] = torch.cuda.OutOfMemoryError) -> None:
        super().__init__()
        self.full = full
        self.error = error
        self.emptied = 0

    @property
    def name(self) -> str:
        return "small:0"

    @property
    def is_cpu(self) -> bool:
        return False

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        self.full -= 1
        if self.full >= 0:
            raise self.error("small:0 is out of memory")
        return tensor

    def empty_cache(self) -> None:
        self.emptied += 1


MEMORY = {
    "enough": (Small(0), "pass", "small:0", "", 0),
    "after the cache was emptied": (Small(1), "pass", "small:0", "", 1),
    "on the CPU": (Small(2), "pass", "cpu", "out of memory on small:0: replayed on the CPU", 2),
    "as a plain RuntimeError": (Small(2, RuntimeError), "pass", "cpu", "replayed on the CPU", 2),
    "as Python's own error": (Small(2, MemoryError), "pass", "cpu", "replayed on the CPU", 2),
}


@pytest.mark.parametrize("name", sorted(MEMORY))
def test_out_of_memory(name: str, bundle: Callable[..., Any]) -> None:
    device, verdict, where, note, emptied = MEMORY[name]
    row = Judge(device, JudgeOptions()).row(bundle("Torch.add.0", (x, x), {}, x + x))
    assert row["verdict"] == verdict
    assert row["device"] == where
    assert note in " ".join(row["notes"])
    assert device.emptied == emptied


def test_out_of_memory_everywhere_is_a_skip_row(bundle: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(device: Device, tensor: torch.Tensor) -> torch.Tensor:
        raise torch.cuda.OutOfMemoryError("no room")

    monkeypatch.setattr(Device, "place", full)
    row = Judge(Device(), JudgeOptions()).row(bundle("Torch.add.0", (x, x), {}, x + x))
    assert row["verdict"] == "skip"
    assert "out of memory" in row["message"]


def test_another_error_is_not_taken_for_it(bundle: Callable[..., Any]) -> None:
    device = Small(1, ValueError)
    row = Judge(device, JudgeOptions()).row(bundle("Torch.add.0", (x, x), {}, x + x))
    assert row["verdict"] == "skip"
    assert device.emptied == 0


WRONG = ["tpu", "cuda:x", "", "CUDA", "cuda:99", "npu:99"]


@pytest.mark.parametrize("name", WRONG)
def test_a_device_that_is_none(name: str) -> None:
    with pytest.raises(ConfigError, match="device = "):
        open_device(name)


def test_workers_without_an_accelerator() -> None:
    if torch.cuda.is_available():
        pytest.skip("this host has an accelerator")
    assert open_device("auto").name == "cpu"
    assert worker_devices("auto", None) == ["cpu"]
    assert worker_devices("cpu", 3) == ["cpu"] * 3


def test_reduced_precision_is_off_unless_asked_for() -> None:
    Device().prepare(tf32=True)
    assert torch.backends.cuda.matmul.allow_tf32
    Device().prepare()
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction


class Wobbly(Device):
    """A device that gives another last bit each time."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        return tensor + self.runs * 2**-23


STABLE = {
    "not asked for": (Device(), False, None),
    "the same bits": (Device(), True, True),
    "other bits": (Wobbly(), True, False),
}


@pytest.mark.parametrize("name", sorted(STABLE))
def test_an_unstable_reference_is_reported_apart_from_a_wrong_device(name: str, bundle: Callable[..., Any]) -> None:
    device, repeat, stable = STABLE[name]
    row = Judge(device, JudgeOptions(repeat=repeat)).row(bundle("Torch.exp.0", (x,), {}, x.exp()))
    assert row["stable"] is stable
    assert any("different bits" in note for note in row["notes"]) is (stable is False)


BITS = {
    "equal": ([x, (x + 1,)], [x.clone(), (x + 1,)], True),
    "nan": (torch.tensor([float("nan")]), torch.tensor([float("nan")]), True),
    "minus zero": (torch.tensor([0.0]), torch.tensor([-0.0]), False),
    "bool": (torch.tensor([True]), torch.tensor([False]), False),
    "scalar": (torch.tensor(1), torch.tensor(1), True),
    "empty": (torch.zeros(0, 2), torch.zeros(0, 2), True),
    "shape": (torch.zeros(1, 2), torch.zeros(2), False),
    "dtype": (torch.zeros(2), torch.zeros(2).int(), False),
    "count": ([x], [x, x], False),
    "complex, strided": (torch.ones(2, 3, dtype=torch.complex64).t(), torch.ones(3, 2, dtype=torch.complex64), True),
}


@pytest.mark.parametrize("name", sorted(BITS))
def test_equal_bits(name: str) -> None:
    one, other, equal = BITS[name]
    assert equal_bits(one, other) is equal

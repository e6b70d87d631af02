"""Copies from an accelerator are queued, and read only when they have arrived: with a fake one, whose copies arrive late."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from spool_writer import device


class _Event:
    def __init__(self, pending: list[tuple[Tensor, Tensor]]) -> None:
        self._pending = pending

    def synchronize(self) -> None:
        assert threading.current_thread() is not threading.main_thread(), "the training waited for a copy"
        while self._pending:
            room, values = self._pending.pop()
            room.copy_(values)


class _Accelerator:
    """As a stream does it: values are those of the moment at which the copy was queued."""

    def __init__(self) -> None:
        self.pending: list[tuple[Tensor, Tensor]] = []
        self.queued_copies = 0

    def copy(self, tensor: Tensor) -> Tensor:
        room = torch.full_like(tensor, float("nan"))
        self.pending.append((room, tensor.clone()))
        self.queued_copies += 1
        return room

    def queued(self, device: torch.device) -> _Event:
        pending, self.pending = self.pending, []
        return _Event(pending)


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> _Accelerator:
    fake = _Accelerator()
    monkeypatch.setattr(device, "accelerator", lambda kind: fake)
    monkeypatch.setattr(device.HostCopies, "is_host", staticmethod(lambda tensor: tensor.dtype is not torch.float64))
    return fake


def test_a_bundle_waits_for_its_copies_and_the_training_does_not(accelerator: _Accelerator, record: Any) -> None:
    def program(debugger: Any) -> None:
        x = torch.ones(3, dtype=torch.float64)
        y = x.add(1)
        y.mul_(5)
        x.zero_()

    bundles = {b.header.api: b for b in record(program)}
    assert accelerator.queued_copies >= 5
    assert bundles["Tensor.add.0"].args[0].tolist() == [1, 1, 1]
    assert bundles["Tensor.add.0"].result.tolist() == [2, 2, 2]
    assert bundles["Tensor.mul_.0"].args[0].tolist() == [2, 2, 2]
    assert bundles["Tensor.mul_.0"].mutated["args[0]"].tolist() == [10, 10, 10]
    assert bundles["Tensor.zero_.0"].args[0].tolist() == [1, 1, 1]


def test_a_kind_without_events_is_copied_at_once() -> None:
    plain = device.Accelerator("no_such_device")
    x = torch.arange(3)
    assert torch.equal(plain.copy(x), x)
    assert plain.queued(x.device) is None

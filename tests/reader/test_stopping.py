"""The first signal asks for a clean end, the second for an immediate one."""

from __future__ import annotations

import os
import signal

import pytest

from spool_reader.interrupts import stop_requests


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_stops_and_second_aborts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    said: list[str] = []
    with stop_requests(said.append) as (stop, abort):
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.is_set()
        assert not abort.is_set()
        os.kill(os.getpid(), number)
        assert abort.is_set()
    assert len(said) == 2
    assert signal.getsignal(number) is before

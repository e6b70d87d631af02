"""Bundles without a writer, and a judge without workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from spool import Bundle, SessionInfo, open_spool
from spool_reader.device import Device
from spool_reader.judging import Judge, JudgeOptions

torch.set_num_threads(1)


def make(
    api: str,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    result: Any = None,
    mutated: dict[str, Any] | None = None,
    **more: Any,
) -> Bundle:
    """A bundle as the training side would have written it."""
    fields: dict[str, Any] = {
        "session": "s1",
        "rank": 0,
        "step": 0,
        "seq": 0,
        "phase": "forward",
        "context": {},
        "producer": {"device": "npu:0"},
        "time": 0.0,
        **more,
    }
    return Bundle.build(api=api, args=args, kwargs=kwargs or {}, result=result, mutated=mutated or {}, **fields)


@pytest.fixture
def bundle() -> Callable[..., Bundle]:
    """`bundle(api, args, kwargs, result, mutated, seq=3, …)` builds one."""
    return make


@pytest.fixture(scope="session")
def row() -> Callable[..., dict[str, Any]]:
    """`row(api, args, kwargs, result, mutated, …)` is the row that the CPU gives such a call."""
    judge = Judge(Device(), JudgeOptions())
    return lambda *args, **more: judge.row(make(*args, **more))


class Training:
    """A writer in this process: a directory spool and one session in it."""

    def __init__(self, spool: Path, rank: int = 0, session: str = "s1") -> None:
        self.path = spool
        self.rank = rank
        self.session = session
        self._spool = open_spool(spool, create=True)
        self._record = self._spool.open_session(SessionInfo(session, rank, "host", 1, "0", 0.0))
        self._next: dict[int, int] = {}

    def call(self, api: str = "Torch.add.0", step: int = 0, *, wrong: bool = False, args: Any = None) -> None:
        """Publish one call: `x + y`, or the api given with its arguments and a result that nobody will see."""
        seq = self._next.get(step, 0)
        self._next[step] = seq + 1
        x = torch.tensor([1.0, 2.0])
        where = {"rank": self.rank, "session": self.session, "step": step, "seq": seq}
        self._spool.publish(make(api, args or (x, x), {}, x + x + wrong, **where))

    def heartbeat(self) -> None:
        self._record.heartbeat({})

    def close(self, state: str = "closed", **counts: int) -> None:
        self._record.close(state, {"published": sum(self._next.values()), **counts})
        self._spool.close()


@pytest.fixture
def training(tmp_path: Path) -> Callable[..., Training]:
    """`training()` starts to write into `tmp_path / "spool"`."""
    return lambda **more: Training(tmp_path / "spool", **more)


POISON = """
import os, signal, time
from fused_ops import register

@register("npu_killed(Tensor x) -> Tensor", source="test")
def killed(precision, x):
    os.kill(os.getpid(), signal.SIGKILL)

@register("npu_exits(Tensor x) -> Tensor", source="test")
def exits(precision, x):
    os._exit(7)

@register("npu_hangs(Tensor x) -> Tensor", source="test")
def hangs(precision, x):
    time.sleep(3600)

@register("npu_slow(Tensor x) -> Tensor", source="test")
def slow(precision, x):
    time.sleep(0.2)
    return x
"""


@pytest.fixture
def poison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that workers import: fused operators that kill their process, end it, hang, or take their time."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "reader_poison.py").write_text(POISON)
    monkeypatch.syspath_prepend(folder)
    return "reader_poison"

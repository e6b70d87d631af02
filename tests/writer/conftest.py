"""Recording into a directory spool and reading back what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from spool import Bundle, open_spool
from spool_check import PrecisionDebugger


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., list[Bundle]]:
    """`record(program, **keywords)` runs `program(debugger)` under the debugger; the bundles in execution order."""

    def run(program: Callable[[PrecisionDebugger], Any], **keywords: Any) -> list[Bundle]:
        folder = tmp_path / "spool"
        with PrecisionDebugger(spool=folder, strict=True, **keywords) as debugger:
            program(debugger)
        with open_spool(folder) as spool:
            bundles = []
            while (claim := spool.claim()) is not None:
                bundles.append(claim.load())
                claim.done()
        return sorted(bundles, key=lambda bundle: (bundle.header.rank, bundle.header.step, bundle.header.seq))

    return run

"""What only the row of a failing call holds: its arguments and how its errors are spread."""

from __future__ import annotations

from typing import Any

import torch


def test_a_failing_row_lists_its_arguments(row: Any) -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    found = row("Torch.add.0", (x, [x.bfloat16(), 2][0]), {"alpha": 2}, result=x * 4)
    assert found["verdict"] == "error"
    assert found["arguments"] == [["args[0]", "float32", [3]], ["args[1]", "bfloat16", [3]], ["kwargs.alpha", "2"]]
    assert found["outputs"][0]["spread"]["equal"] == 0


def test_a_passing_row_stays_small(row: Any) -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    found = row("Torch.add.0", (x, x), result=x * 2)
    assert (found["verdict"], "arguments" in found, "spread" in found["outputs"][0]) == ("pass", False, False)


def test_long_and_many_arguments_are_cut(row: Any) -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    found = row("Torch.stack.0", ([x] * 100,), result=torch.zeros(100, 3))
    assert (found["verdict"], len(found["arguments"])) == ("error", 40)

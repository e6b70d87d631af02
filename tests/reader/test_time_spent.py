"""Where the time of judging went, as `report --stats` tells it."""

from __future__ import annotations

from spool_reader.time_spent import time_lines


def row(api: str, **timings: float) -> dict[str, object]:
    return {"api": api, "timings": timings}


def test_parts_and_operators() -> None:
    rows = [
        row("Torch.mul.0", reference=1.0, golden=0.5, total=2.0),
        row("Torch.mul.1", reference=1.0, total=1.0),
        row("Aten.mm.0", judge=1.0),
        row("Torch.\x1b[31madd.0"),
    ]
    first, *others = time_lines(rows)
    assert first == "time: 4.000 s in 4 calls: reference 2.000 s, judge 1.000 s, golden 0.500 s, all else 0.500 s"
    assert [line.split() for line in others] == [
        ["3.000", "s", "75.0", "%", "2", "calls", "Torch.mul"],
        ["1.000", "s", "25.0", "%", "1", "calls", "Aten.mm"],
        ["0.000", "s", "0.0", "%", "1", "calls", "Torch.add"],
    ]


def test_no_rows() -> None:
    assert time_lines([]) == ["time: 0.000 s in 0 calls: "]

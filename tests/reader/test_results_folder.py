"""The results folder: one owner, one row a call, nothing torn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import environment

from spool import ResultsError
from spool_reader.results import ResultsFolder, read_rows
from spool_reader.rows import Finding, encode_row, finding_of, skip_row
from spool_reader.seen_keys import SeenKeys


def line(seq: int, *, rank: int = 0, step: int = 0, session: str = "s1", **more: Any) -> tuple[Any, bytes]:
    row = {**skip_row((session, rank, step, seq), "Torch.add.0", "forward", "reason"), **more}
    return finding_of(row), encode_row(row)


def seqs(folder: Path) -> list[int]:
    return [row["seq"] for row in read_rows([folder])]


def test_rows_are_appended_by_rank_and_read_again(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path / "out") as results:
        assert [finding.seq for finding in results.commit([line(0), line(1, rank=3), line(2)])] == [0, 1, 2]
        results.commit([line(7)])
    assert sorted(path.name for path in (tmp_path / "out").glob("*.jsonl")) == [
        "results-rank0.jsonl",
        "results-rank3.jsonl",
    ]
    assert seqs(tmp_path / "out") == [0, 2, 7, 1]


def test_a_call_gets_one_row_whatever_happens(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path) as results:
        assert len(results.commit([line(0), line(0), line(1)])) == 2
        assert results.commit([line(1)]) == []
        assert len(results.commit([line(1, step=1), line(1, session="s2"), line(1, rank=1)])) == 3
    with ResultsFolder(tmp_path) as again:
        assert again.found == 5
        assert again.commit([line(0), line(1)]) == []
    assert len(seqs(tmp_path)) == 5


TORN = {
    "half a line": (b'{"v":1,"session":"s1","ra', [0, 1]),
    "a line without its end": (line(9)[1].rstrip(b"\n"), [0, 1]),
    "zeros": (bytes(5000), [0, 1]),
    "a long half line": (b'{"v":' + b"1" * 200_000, [0, 1]),
    "nothing": (b"", [0, 1]),
}


@pytest.mark.parametrize("name", sorted(TORN))
def test_what_a_crash_left_half_written_is_cut(name: str, tmp_path: Path) -> None:
    tail, left = TORN[name]
    path = tmp_path / "results-rank0.jsonl"
    path.write_bytes(line(0)[1] + line(1)[1] + tail)
    found: list[Finding] = []
    with ResultsFolder(tmp_path, found.append) as results:
        assert [finding.seq for finding in found] == left
        assert results.damaged == 0
        results.commit([line(9)])
    assert seqs(tmp_path) == [*left, 9]
    assert all(json.loads(text) for text in path.read_text().splitlines())


def test_a_file_that_is_all_torn_starts_anew(tmp_path: Path) -> None:
    (tmp_path / "results-rank0.jsonl").write_bytes(b'{"v":1,"sess')
    with ResultsFolder(tmp_path) as results:
        results.commit([line(4)])
    assert seqs(tmp_path) == [4]


DAMAGED = {
    "no JSON": b"hello\n",
    "no object": b"[1, 2]\n",
    "no row": b'{"v": 1}\n',
    "summary": b'{"v": 1, "summary": {}}\n',
    "unknown verdict": encode_row({**json.loads(line(3)[1]), "verdict": "maybe"}),
    "rank that is no number": encode_row({**json.loads(line(3)[1]), "rank": "x"}),
}


@pytest.mark.parametrize("name", sorted(DAMAGED))
def test_a_damaged_line_is_counted_and_passed_over(name: str, tmp_path: Path) -> None:
    (tmp_path / "results-rank0.jsonl").write_bytes(line(0)[1] + DAMAGED[name] + line(1)[1])
    found: list[Finding] = []
    with ResultsFolder(tmp_path, found.append) as results:
        assert [finding.seq for finding in found] == [0, 1]
        assert results.damaged == 1
    assert seqs(tmp_path) == [0, 1]


HOLD = """
import sys
from pathlib import Path
from spool_reader.results import ResultsFolder
with ResultsFolder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_owner_is_told_who_the_first_is(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ResultsError, match=rf"process {holder.pid} on .*--out"):
            ResultsFolder(tmp_path)
        holder.kill()
    with ResultsFolder(tmp_path) as results:
        assert results.resumed, "the first owner died in the middle of its work"
    with ResultsFolder(tmp_path) as results:
        assert not results.resumed


def test_the_same_process_cannot_own_it_twice(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path), pytest.raises(ResultsError, match=str(os.getpid())):
        ResultsFolder(tmp_path)


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="--out"):
        ResultsFolder(tmp_path / "file" / "out")
    with pytest.raises(ResultsError, match="does not exist"):
        list(read_rows([tmp_path / "missing"]))


STRICT = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


@pytest.mark.parametrize("name", sorted(STRICT))
def test_rows_are_strict_json(name: str) -> None:
    encoded = encode_row({"metrics": {"x": STRICT[name]}, "list": [(STRICT[name],)], "text": "a\u2028\x1b\n"})
    assert encoded.endswith(b"\n")
    assert encoded.count(b"\n") == 1

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    row = json.loads(encoded, parse_constant=refuse)
    assert row == {"metrics": {"x": name}, "list": [[name]], "text": "a\u2028\x1b\n"}


def test_a_million_keys_are_a_bit_each() -> None:
    seen = SeenKeys()
    assert all(seen.add(("s", 0, step, seq)) for step in range(10) for seq in range(10_000))
    assert not any(seen.add(("s", 0, step, seq)) for step in range(10) for seq in range(0, 10_000, 97))
    assert len(seen) == 100_000
    assert ("s", 0, 3, 9_999) in seen
    assert ("s", 0, 3, 10_000) not in seen
    assert ("s", 1, 3, 0) not in seen
    assert sum(map(len, seen._pages.values())) < 10 * 10_000 / 4


def test_a_far_off_key_costs_no_more_than_others() -> None:
    seen = SeenKeys()
    assert seen.add(("s", 0, 10**11, 999_999_999))
    assert not seen.add(("s", 0, 10**11, 999_999_999))
    assert sum(map(len, seen._pages.values())) <= 2048

"""Many results folders as one report, and what is wrong with folders, files and rows."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batch_spools import add_call, fill
from click.testing import CliRunner, Result
from processes import key_of, rows_of

from cli import main
from spool_reader.merging import Merged
from spool_reader.watch import reprocess

RANKS, STEPS, CALLS = 3, 2, 4


def run(*words: Any) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def calls() -> list[Any]:
    return [
        add_call(rank, step, seq, off=0.5 * (seq == 2 and step == 1))
        for rank in range(RANKS)
        for step in range(STEPS)
        for seq in range(CALLS)
    ]


def judged(tmp_path: Path, name: str, **selected: Any) -> Path:
    spool = tmp_path / "spools" / name
    spool.parent.mkdir(exist_ok=True)
    fill(spool, calls())
    reprocess(spool, out=tmp_path / name, workers=0, device="cpu", **selected)
    return tmp_path / name


@pytest.fixture(scope="module")
def judged_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run over all, and three hosts that shared the work: by steps, and within a step by ranks."""
    folder = tmp_path_factory.mktemp("judged")
    judged(folder, "all")
    judged(folder, "host1", steps=(0,), ranks=(0, 2))
    judged(folder, "host2", steps=(0,), ranks=(1,))
    judged(folder, "host3", steps=(1,))
    return folder


@pytest.fixture
def folders(judged_once: Path, tmp_path: Path) -> list[Path]:
    """Copies of the four results folders, to be changed at will."""
    return [shutil.copytree(judged_once / name, tmp_path / name) for name in ("all", "host1", "host2", "host3")]


def tables(folder: Path) -> dict[str, list[list[str]]]:
    """The rows of every CSV file by its kind and rank."""
    found = {}
    for path in sorted(folder.glob("*.csv")):
        parts = path.stem.split("_")
        with path.open(encoding="utf-8-sig", newline="") as file:
            found["_".join((*parts[:-2], parts[-1]))] = list(csv.reader(file))
    return found


def test_three_folders_make_the_report_of_one_run_row_for_row(folders: list[Path], tmp_path: Path) -> None:
    one, *three = folders
    merged = run("report", *three, "--format", "csv", "--out", tmp_path / "merged")
    whole = run("report", one, "--format", "csv", "--out", tmp_path / "whole")
    assert merged.exit_code == whole.exit_code == 1
    assert len(tables(tmp_path / "merged")) == 4 * RANKS
    assert tables(tmp_path / "merged") == tables(tmp_path / "whole")
    assert merged.output.splitlines()[-1] == whole.output.splitlines()[-1]

    summaries = [json.loads(run("report", *some, "--format", "json").stdout)["summary"] for some in (three, [one])]
    for name in ("verdicts", "rows", "operators", "first_divergence", "worst", "exit_code"):
        assert summaries[0][name] == summaries[1][name]

    plain = [[{**row, "timings": None} for row in Merged(some).rows()] for some in (three, [one])]
    assert plain[0] == plain[1]
    places = [(row["rank"], row["step"], row["seq"]) for row in plain[0]]
    assert places == sorted(places)
    assert len(places) == RANKS * STEPS * CALLS


@pytest.mark.parametrize(("words", "count"), [(["--rank", "1"], 8), (["--step", "0", "--api", "Torch.add.3"], 3)])
def test_a_report_of_a_part(words: list[str], count: int, folders: list[Path]) -> None:
    summary = json.loads(run("report", *folders[1:], "--format", "json", *words).stdout)["summary"]
    assert summary["rows"] == count


def test_a_copy_of_a_folder_counts_once(folders: list[Path], tmp_path: Path) -> None:
    shutil.copytree(folders[1], tmp_path / "copy")
    done = run("report", folders[1], tmp_path / "copy", folders[1])
    assert done.exit_code == 0, done.output
    assert "RESULT PASS: 8 pass" in done.output
    assert "rank 0: 4 rows stand in two folders and count once" in done.output
    assert "given twice, read once" in done.output


def test_csv_files_of_several_folders_need_a_place(folders: list[Path]) -> None:
    done = run("report", *folders[1:], "--format", "csv")
    assert done.exit_code == 2
    assert "--out is missing: 3 results folders make one set of CSV files" in done.output


def a_newer_version(folder: Path) -> None:
    change_line(folder, lambda row: {**row, "v": 2})


def another_session_of_the_same_name(folder: Path) -> None:
    change_line(
        folder,
        lambda row: {**row, "session": "run1-rank0", "rank": 0, "api": "Torch.mul.0", "step": 0, "seq": 0},
        add=0,
    )


def another_verdict(folder: Path) -> None:
    change_line(folder, lambda row: {**row, "step": 0, "seq": 0, "api": "Torch.add.0", "verdict": "warning"})


def another_rank(folder: Path) -> None:
    change_line(folder, lambda row: {**row, "rank": 2})


def no_json(folder: Path) -> None:
    path = folder / "results-rank0.jsonl"
    path.write_bytes(b"oops\n" + path.read_bytes())


def an_unknown_verdict(folder: Path) -> None:
    change_line(folder, lambda row: {**row, "verdict": "fine"})


def only_csv_files(folder: Path) -> None:
    for path in folder.glob("*.jsonl"):
        path.unlink()


def a_csv_edited_by_hand(folder: Path) -> None:
    for path in folder.glob("*.csv"):
        path.write_text("edited", encoding="utf-8")


def a_line_without_its_end(folder: Path) -> None:
    with (folder / "results-rank0.jsonl").open("ab") as file:
        file.write(b'{"v":1,"session":"run1-ra')


def change_line(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]], add: int | None = None) -> None:
    """Change the first row of rank 0, or add a changed copy of it."""
    path = folder / "results-rank0.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    changed = json.dumps(change(json.loads(lines[0])))
    path.write_text("\n".join([changed, *lines[1 if add is None else add :]]) + "\n", encoding="utf-8")


# name: (what happened to the third folder, words of the report, rows that are lost)
FAULTS: dict[str, tuple[Callable[[Path], None], str, int]] = {
    "newer version": (a_newer_version, "1 rows of format 2 are not shown; this version reads 1", 1),
    "same session name": (another_session_of_the_same_name, "two runs have the same session name, at 1 calls", -1),
    "judged twice": (another_verdict, "1 calls are judged differently in two folders", 1),
    "row of another rank": (
        another_rank,
        "1 lines are no rows and are not shown: line 1 (ValueError: it says rank 2)",
        1,
    ),
    "line that is no JSON": (no_json, "1 lines are no rows and are not shown: line 1 (JSONDecodeError", 0),
    "unknown verdict": (an_unknown_verdict, "unknown verdict 'fine'", 1),
    "no rows at all": (only_csv_files, "holds no results-rank*.jsonl, so it has no rows", 12),
    "edited CSV files": (a_csv_edited_by_hand, "", 0),
    "row being written": (a_line_without_its_end, "", 0),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_said_and_the_rest_is_shown(name: str, folders: list[Path]) -> None:
    change, words, lost = FAULTS[name]
    change(folders[3])
    done = run("report", *folders[1:], "--format", "json", "--step", "0,1")
    assert words in done.stderr
    assert bool(words) == ("error: " in done.stderr)
    summary = json.loads(done.stdout)["summary"]
    assert summary["rows"] == RANKS * STEPS * CALLS - lost
    failing = summary["verdicts"].get("error", 0)
    assert done.exit_code == (1 if failing else 3), "the errors that can be shown decide"


def test_a_good_report_that_is_not_whole_is_no_good_end(folders: list[Path]) -> None:
    no_json(folders[1])
    done = run("report", *folders[1:3])
    assert "RESULT PASS: 12 pass" in done.output
    assert done.exit_code == 3


def test_rows_of_many_ranks_need_few_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spool_reader.results._OPEN_FILES", 2)
    fill(tmp_path / "spool", [add_call(rank, step, 0) for rank in range(7) for step in range(3)])
    assert reprocess(tmp_path / "spool", out=tmp_path / "out", workers=0).rows == 21
    assert len({key_of(row) for row in rows_of(tmp_path / "out")}) == 21

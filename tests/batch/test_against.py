"""Two runs side by side: worse, better, new, gone, as before; runs that cannot be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli import main


def run(*words: Any) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def results(folder: Path, calls: dict[str, tuple[str, float | str | None]], *, session: str, rank: int = 0) -> Path:
    """A results folder with these verdicts and ratios by API name."""
    folder.mkdir(exist_ok=True)
    with (folder / f"results-rank{rank}.jsonl").open("a", encoding="utf-8") as file:
        for seq, (api, (verdict, ratio)) in enumerate(calls.items()):
            row = {
                "v": 1,
                "session": session,
                "rank": rank,
                "step": 0,
                "seq": seq,
                "api": api,
                "phase": "forward",
                "verdict": verdict,
                "status": verdict,
                "standard": "benchmark",
                "message": f"{api} says {verdict}",
                "outputs": [{"index": 0, "ratio": ratio}],
            }
            file.write(json.dumps(row) + "\n")
    return folder


# name: (before, after, kind)
CALLS: dict[str, tuple[tuple[str, Any] | None, tuple[str, Any] | None, str]] = {
    "Torch.as_before.0": (("pass", 0.1), ("pass", 0.9), "same"),
    "Torch.fails_now.0": (("pass", 0.1), ("error", 3.0), "worse"),
    "Torch.warns_now.0": (("pass", 0.1), ("warning", None), "worse"),
    "Torch.was_known.0": (("known", 3.0), ("error", 3.0), "worse"),
    "Torch.grows.0": (("error", 3.0), ("error", 6.0), "worse"),
    "Torch.grows_without_end.0": (("error", 3.0), ("error", "inf"), "worse"),
    "Torch.endless_as_before.0": (("error", "inf"), ("error", "inf"), "same"),
    "Torch.grows_little.0": (("error", 3.0), ("error", 5.0), "same"),
    "Torch.shrinks.0": (("error", 6.0), ("error", 2.0), "better"),
    "Torch.fixed.0": (("error", 3.0), ("pass", 0.1), "better"),
    "Torch.known_now.0": (("error", 3.0), ("known", 3.0), "better"),
    "Torch.new_and_good.0": (None, ("pass", 0.1), "new"),
    "Torch.new_and_bad.0": (None, ("error", 2.0), "new"),
    "Torch.judged_now.0": (("skip", None), ("pass", 0.1), "new"),
    "Torch.gone.0": (("pass", 0.1), None, "gone"),
    "Torch.skipped_now.0": (("error", 3.0), ("skip", None), "gone"),
    "Torch.never_judged.0": (("skip", None), ("skip", None), ""),
}


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    before = {api: sides[0] for api, sides in CALLS.items() if sides[0] is not None}
    # In another order: names tell calls apart, not their numbers in the step.
    after = {api: sides[1] for api, sides in reversed(CALLS.items()) if sides[1] is not None}
    return results(tmp_path / "after", after, session="b"), results(tmp_path / "before", before, session="a")


def test_every_kind_of_change(runs: tuple[Path, Path]) -> None:
    after, before = runs
    done = run("report", after, "--against", before, "--format", "json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)["against"]
    kinds = {change["api"]: kind for kind in ("worse", "better", "new", "gone") for change in found["changes"][kind]}
    assert kinds == {api: kind for api, (_, _, kind) in CALLS.items() if kind not in ("same", "")}
    assert found["same"] == sum(kind == "same" for _, _, kind in CALLS.values())
    assert found["failing_new"] == 1
    assert found["operators"]["Torch.grows"] == {"worse": 1}


def test_the_same_in_words(runs: tuple[Path, Path]) -> None:
    after, before = runs
    done = run("report", after, "--against", before)
    assert "worse: 5 calls" in done.output
    assert "error -> error (3x -> 6x its limit)  rank 0 step 0  Torch.grows.0 forward" in done.output
    assert done.output.splitlines()[-1] == "RESULT WORSE: 5 worse, 3 better, 3 new, 2 gone, 3 as before"


def test_a_part_of_two_runs(runs: tuple[Path, Path]) -> None:
    after, before = runs
    done = run("report", after, "--against", before, "--api", "fixed,as_before")
    assert done.exit_code == 0
    assert done.output.splitlines()[-1] == "RESULT NOT WORSE: 0 worse, 1 better, 0 new, 0 gone, 1 as before"


def test_ranks_of_several_folders_on_both_sides(tmp_path: Path) -> None:
    good, bad = {"Torch.a.0": ("pass", 0.1)}, {"Torch.a.0": ("error", 2.0)}
    for rank in range(3):
        results(tmp_path / f"old{rank}", good, session="a", rank=rank)
        results(tmp_path / "new", bad if rank == 1 else good, session="b", rank=rank)
    old = [word for rank in range(3) for word in ("--against", tmp_path / f"old{rank}")]
    done = run("report", tmp_path / "new", *old, "--format", "json")
    found = json.loads(done.stdout)["against"]
    assert (found["worse"], found["same"]) == (1, 2)
    assert found["changes"]["worse"][0]["rank"] == 1


def test_many_changes_are_counted_and_the_worst_kept(tmp_path: Path) -> None:
    names = [f"Torch.a.{number}" for number in range(200)]
    before = results(tmp_path / "a", dict.fromkeys(names, ("pass", 0.1)), session="a")
    after = results(
        tmp_path / "b", {name: ("error" if name == names[-1] else "warning", 2.0) for name in names}, session="b"
    )
    found = json.loads(run("report", after, "--against", before, "--format", "json").stdout)["against"]
    assert found["worse"] == 200
    assert [change["api"] for change in found["changes"]["worse"]] == [names[-1], *names[:19]]
    assert "and 180 more" in run("report", after, "--against", before).output


def test_a_training_that_was_started_again_counts_with_its_last_session(tmp_path: Path) -> None:
    before = results(tmp_path / "a", {"Torch.a.0": ("pass", 0.1)}, session="a")
    after = results(tmp_path / "b", {"Torch.a.0": ("error", 2.0)}, session="b1")
    results(tmp_path / "b", {"Torch.a.0": ("pass", 0.1)}, session="b2")
    done = run("report", after, "--against", before)
    assert "1 calls stand more than once in one run" in done.output
    assert "RESULT NOT WORSE" in done.output


def test_the_same_folder_on_both_sides_is_refused(runs: tuple[Path, Path]) -> None:
    done = run("report", runs[0], "--against", runs[0])
    assert done.exit_code == 2
    assert "stands on both sides; give another results folder to --against" in done.output


def test_runs_with_nothing_in_common_say_so(tmp_path: Path) -> None:
    before = results(tmp_path / "a", {"Torch.a.0": ("pass", 0.1)}, session="a")
    after = results(tmp_path / "b", {"Torch.b.0": ("pass", 0.1)}, session="b")
    done = run("report", after, "--against", before)
    assert done.exit_code == 5
    assert "RESULT NOTHING IN COMMON: 0 worse, 0 better, 1 new, 1 gone, 0 as before" in done.output


def test_what_cannot_be_read_on_either_side_is_said(runs: tuple[Path, Path]) -> None:
    after, before = runs
    path = before / "results-rank0.jsonl"
    path.write_bytes(b"oops\n" + path.read_bytes())
    done = run("report", after, "--against", before, "--api", "fixed")
    assert "1 lines are no rows" in done.stderr
    assert done.exit_code == 3


@pytest.mark.parametrize("words", [["--format", "csv"], ["--html"], ["--format", "junit"], ["--stats"]])
def test_what_a_comparison_cannot_make_is_refused(words: list[str], runs: tuple[Path, Path]) -> None:
    after, before = runs
    done = run("report", after, "--against", before, *words)
    assert done.exit_code == 2
    assert "as text or json; leave out" in done.output

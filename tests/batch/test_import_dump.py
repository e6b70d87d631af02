"""Offline dumps of the peer become bundles that are judged: its own, and hand-made ones with every kind of damage."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from hand_made_dumps import DumpMaker, X
from peer_tool import PYTHON, require_peer
from processes import left_in, rows_of

from cli import main
from spool import SpoolError, SpoolFull, SpoolUnavailable
from spool_reader.import_dump import import_dump
from spool_reader.watch import reprocess


def run(*words: Any) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def judged(dump: Path, tmp_path: Path, name: str = "out") -> dict[tuple[int, int, str, str], dict[str, Any]]:
    """Import, reprocess, and the rows by rank, step, API and phase."""
    imported = run("import", dump, tmp_path / f"spool-{name}", "--json")
    assert imported.exit_code in (0, 3), imported.output
    reprocess(tmp_path / f"spool-{name}", out=tmp_path / name, workers=0, device="cpu")
    rows = rows_of(tmp_path / name)
    assert json.loads(imported.stdout)["calls"] == len(rows)
    assert left_in(tmp_path / f"spool-{name}") == []
    return {(row["rank"], row["step"], row["api"], row["phase"]): row for row in rows}


@pytest.fixture(scope="module")
def peer_dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_peer()
    folder = tmp_path_factory.mktemp("peer") / "dump"
    script = Path(__file__).resolve().parents[1] / "support" / "peer_training.py"
    done = subprocess.run(
        [str(PYTHON), str(script), str(folder)], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.peer
def test_a_dump_of_the_peer_is_judged(peer_dump: Path, tmp_path: Path) -> None:
    rows = judged(peer_dump, tmp_path)
    assert {(rank, step) for rank, step, _, _ in rows} == {(0, 0), (0, 1)}
    forward = {api: row for (_, step, api, phase), row in rows.items() if phase == "forward" and step == 0}
    names = "linear gelu layer_norm add_ cat topk sum __mul__ matmul einsum mul masked_fill pad t".split()
    verdicts = {api.split(".")[1]: row["verdict"] for api, row in forward.items() if api.split(".")[1] in names}
    assert verdicts == dict.fromkeys(names, "pass")
    skipped = {api: row["message"] for api, row in forward.items() if row["verdict"] == "skip"}
    assert "nothing that this call returned" in skipped["Tensor.__setitem__.0"]
    assert "args[1]: the dump does not say what stood here" in skipped["Tensor.to.0"]
    backward = [row for (_, _, _, phase), row in rows.items() if phase == "backward"]
    assert backward
    assert all("not the operators of its backward" in row["message"] for row in backward)


@pytest.mark.peer
def test_an_error_in_a_dump_of_the_peer_is_found(peer_dump: Path, tmp_path: Path) -> None:
    path = peer_dump / "step1" / "rank" / "dump_tensor_data" / "Functional.layer_norm.0.forward.output.0.pt"
    before = path.read_bytes()
    torch.save(torch.load(path, weights_only=True) * 1.01, path)
    try:
        rows = judged(peer_dump, tmp_path)
    finally:
        path.write_bytes(before)
    assert {key[1:3] for key, row in rows.items() if row["verdict"] == "error"} == {(1, "Functional.layer_norm.0")}


VALUES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], Any]] = {
    "numbers": ("Torch.add.0", (X, 2), {"alpha": 0.5}, X + 1),
    "a list of tensors": ("Torch.cat.0", ([X, X],), {"dim": 0}, torch.cat([X, X])),
    "text": ("Torch.einsum.0", ("i,i->", X, X), {}, torch.tensor(14.0)),
    "two outputs": ("Torch.topk.0", (X, 2), {}, (torch.tensor([3.0, 2.0]), torch.tensor([2, 1]))),
    "dtype": ("Torch.sum.0", (X,), {"dtype": torch.float64}, X.double().sum()),
    "slices": ("Tensor.__getitem__.0", (X.expand(2, 3), (..., slice(0, None, 2))), {}, X.expand(2, 3)[..., 0::2]),
    "memory format": ("Torch.ones_like.0", (X,), {"memory_format": torch.preserve_format}, torch.ones(3)),
    "none": ("Torch.clamp.0", (X, None, 2.0), {}, X.clamp(None, 2.0)),
    "infinity": ("Tensor.masked_fill.0", (X, X > 1, float("inf")), {}, X.masked_fill(X > 1, float("inf"))),
    "device": ("Torch.zeros.0", (3,), {"device": torch.device("cpu")}, torch.zeros(3)),
    "written in place": ("Tensor.mul_.0", (X, 2.0), {}, X * 2),
    "bool": ("Torch.var.0", (X,), {"unbiased": False}, X.var(unbiased=False)),
}


def test_every_kind_of_value_is_judged(tmp_path: Path) -> None:
    maker = DumpMaker(tmp_path / "dump")
    for api, args, kwargs, output in VALUES.values():
        maker.call(api, args, kwargs, output)
    maker.call("Torch.mul.0", (X, 2.0), {}, X * 2.1)
    maker.write()
    rows = judged(tmp_path / "dump", tmp_path)
    verdicts = {key[2]: (row["verdict"], row["message"]) for key, row in rows.items()}
    assert {api: verdicts[api] for api, *_ in VALUES.values()} == {api: ("pass", "") for api, *_ in VALUES.values()}
    assert verdicts["Torch.mul.0"][0] == "error"
    assert [row["seq"] for row in rows.values()] == list(range(len(VALUES) + 1)), "in the order of the dump"


def missing_tensor(entry: dict[str, Any], maker: DumpMaker) -> None:
    (maker.data / entry["output"][0]["data_name"]).unlink()


def no_data(entry: dict[str, Any], maker: DumpMaker) -> None:
    del entry["input_args"][0]["data_name"]


def path_upwards(entry: dict[str, Any], maker: DumpMaker) -> None:
    torch.save(X, maker.folder / "secret.pt")
    entry["input_args"][0]["data_name"] = "../secret.pt"


def absolute_path(entry: dict[str, Any], maker: DumpMaker) -> None:
    torch.save(X, maker.folder / "secret.pt")
    entry["input_args"][0]["data_name"] = str(maker.folder / "secret.pt")


def link_outwards(entry: dict[str, Any], maker: DumpMaker) -> None:
    torch.save(X, maker.folder / "secret.pt")
    path = maker.data / entry["input_args"][0]["data_name"]
    path.unlink()
    path.symlink_to(maker.folder / "secret.pt")


class Harmful:
    """Unpickled by a loader that executes what it reads, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._mark),)


def pickled_code(entry: dict[str, Any], maker: DumpMaker) -> None:
    torch.save(Harmful(maker.folder / "mark"), maker.data / entry["input_args"][0]["data_name"])


def plain_pickle(entry: dict[str, Any], maker: DumpMaker) -> None:
    (maker.data / entry["input_args"][0]["data_name"]).write_bytes(pickle.dumps(Harmful(maker.folder / "mark")))


def cut_off(entry: dict[str, Any], maker: DumpMaker) -> None:
    path = maker.data / entry["output"][0]["data_name"]
    path.write_bytes(path.read_bytes()[:100])


def empty_file(entry: dict[str, Any], maker: DumpMaker) -> None:
    (maker.data / entry["output"][0]["data_name"]).write_bytes(b"")


def no_tensor(entry: dict[str, Any], maker: DumpMaker) -> None:
    torch.save({"a": X}, maker.data / entry["output"][0]["data_name"])


def another_shape(entry: dict[str, Any], maker: DumpMaker) -> None:
    torch.save(torch.ones(4), maker.data / entry["output"][0]["data_name"])


def unknown_kind(entry: dict[str, Any], maker: DumpMaker) -> None:
    entry["input_args"][1] = {"type": "torch.ProcessGroup", "group_ranks": [0]}


def forged_number(entry: dict[str, Any], maker: DumpMaker) -> None:
    entry["input_args"][1] = {"type": "int", "value": "2"}


def nested_deeply(entry: dict[str, Any], maker: DumpMaker) -> None:
    for _ in range(50):
        entry["input_args"][1] = [entry["input_args"][1]]


def outputs_not_dumped(entry: dict[str, Any], maker: DumpMaker) -> None:
    del entry["output"]


def no_object(entry: dict[str, Any], maker: DumpMaker) -> None:
    maker.entries["Torch.add.0.forward"] = 7


DAMAGE: dict[str, tuple[Callable[[dict[str, Any], DumpMaker], None], str]] = {
    "missing tensor": (missing_tensor, "output[0]: Torch.add.0.forward.output.0.pt is missing in dump_tensor_data"),
    "no data": (no_data, "args[0]: the dump has no data of this tensor"),
    "path upwards": (path_upwards, "'../secret.pt' is no name of a .pt file in dump_tensor_data, and was not opened"),
    "absolute path": (absolute_path, "is no name of a .pt file in dump_tensor_data, and was not opened"),
    "link outwards": (link_outwards, "is a link out of dump_tensor_data, and was not opened"),
    "pickled code": (pickled_code, "cannot be loaded: UnpicklingError"),
    "plain pickle": (plain_pickle, "cannot be loaded: UnpicklingError"),
    "cut off": (cut_off, "output[0]: Torch.add.0.forward.output.0.pt cannot be loaded"),
    "empty file": (empty_file, "output[0]: Torch.add.0.forward.output.0.pt cannot be loaded"),
    "no tensor": (no_tensor, "holds dict, no tensor"),
    "another shape": (another_shape, "is torch.float32 [4], dump.json says torch.float32 [3]"),
    "unknown kind": (
        unknown_kind,
        "args[1]: a torch.ProcessGroup that the dump describes as None cannot be made again",
    ),
    "forged number": (forged_number, "args[1]: a int that the dump describes as '2' cannot be made again"),
    "nested deeply": (nested_deeply, "nested more than 20 deep"),
    "outputs not dumped": (outputs_not_dumped, "the dump holds no output of this call; dump with data_mode all"),
    "no object": (no_object, "dump.json says 7 of this call"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_call_is_skipped_with_the_reason_and_the_rest_judged(name: str, tmp_path: Path) -> None:
    damage, reason = DAMAGE[name]
    maker = DumpMaker(tmp_path / "dump", rank="")
    entry = maker.call("Torch.add.0", (X, 2.0), {}, X + 2)
    maker.call("Torch.mul.0", (X, 2.0), {}, X * 2)
    damage(entry, maker)
    maker.write()
    rows = judged(tmp_path / "dump", tmp_path)
    skipped, good = rows[0, 0, "Torch.add.0", "forward"], rows[0, 0, "Torch.mul.0", "forward"]
    assert (skipped["verdict"], good["verdict"]) == ("skip", "pass")
    assert reason in skipped["message"]
    assert not (maker.folder / "mark").exists(), "something out of the dump was executed"


def test_ranks_and_steps_come_from_the_folders(tmp_path: Path) -> None:
    for step in (0, 3):
        for rank in (1, 10):
            maker = DumpMaker(tmp_path / "dump", step=step, rank=rank)
            maker.call("Torch.add.0", (X, 2.0), {}, X + 2)
            maker.write()
    rows = judged(tmp_path / "dump", tmp_path)
    assert {key[:2] for key in rows} == {(1, 0), (1, 3), (10, 0), (10, 3)}
    part = judged(tmp_path / "dump" / "step3" / "rank10", tmp_path, "part")
    assert {key[:2] for key in part} == {(10, 3)}


def test_a_second_import_gives_the_same_calls(tmp_path: Path) -> None:
    maker = DumpMaker(tmp_path / "dump")
    maker.call("Torch.add.0", (X, 2.0), {}, X + 2)
    maker.write()
    for _ in range(2):
        import_dump(tmp_path / "dump", tmp_path / "spool")
        summary = reprocess(tmp_path / "spool", out=tmp_path / "out", workers=0)
    assert (summary.rows, summary.repeated) == (1, 1)


def broken_json(maker: DumpMaker) -> None:
    (maker.folder / "dump.json").write_text('{"task": "tensor", "data": {')


def statistics(maker: DumpMaker) -> None:
    maker.top["task"] = "statistics"
    maker.write()


def modules(maker: DumpMaker) -> None:
    maker.top["level"] = "L0"
    maker.write()


def mindspore(maker: DumpMaker) -> None:
    maker.top["framework"] = "mindspore"
    maker.write()


def no_table(maker: DumpMaker) -> None:
    (maker.folder / "dump.json").write_text("[]")


UNUSABLE: dict[str, tuple[Callable[[DumpMaker], None], str]] = {
    "cut off": (broken_json, "was the dump cut off"),
    "statistics": (statistics, "task is 'statistics', not tensor; statistics hold no tensors"),
    "modules": (modules, "level is 'L0', not L1 or mix"),
    "another framework": (mindspore, "framework is 'mindspore', not pytorch"),
    "no table": (no_table, "holds no object with `data`"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_dump_that_cannot_be_used_is_named_and_others_are_imported(name: str, tmp_path: Path) -> None:
    change, words = UNUSABLE[name]
    bad = DumpMaker(tmp_path / "dump", step=0)
    bad.write()
    change(bad)
    alone = run("import", tmp_path / "dump", tmp_path / "spool")
    assert alone.exit_code == 3
    assert words in alone.output
    with pytest.raises(SpoolError, match=r"dump\.json"):
        import_dump(tmp_path / "dump", tmp_path / "spool")

    good = DumpMaker(tmp_path / "dump", step=1)
    good.call("Torch.add.0", (X, 2.0), {}, X + 2)
    good.write()
    both = run("import", tmp_path / "dump", tmp_path / "spool")
    assert both.exit_code == 3
    assert "imported 1 calls of 1 dumps" in both.output
    assert words in both.output


def test_module_entries_of_level_mix_are_left_out(tmp_path: Path) -> None:
    maker = DumpMaker(tmp_path / "dump")
    maker.top["level"] = "mix"
    maker.call("Torch.add.0", (X, 2.0), {}, X + 2)
    maker.entries["Module.layers.0.Linear.forward.0"] = {}
    maker.write()
    assert import_dump(tmp_path / "dump", tmp_path / "spool").calls == 1


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_place_without_a_dump_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpoolUnavailable, match=name):
        import_dump(tmp_path / name, tmp_path / "spool")
    assert not (tmp_path / "spool").exists()


def test_a_full_disk_ends_the_import_and_says_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = DumpMaker(tmp_path / "dump")
    maker.call("Torch.add.0", (X, 2.0), {}, X + 2)
    maker.write()
    monkeypatch.setattr("spool.directory.DirectorySpool.publish", lambda self, bundle: False)
    with pytest.raises(SpoolFull, match="no room after 0 calls; make room and import again"):
        import_dump(tmp_path / "dump", tmp_path / "spool")

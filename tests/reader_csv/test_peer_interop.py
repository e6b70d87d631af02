"""Files go both ways: the peer's compare reads ours and finds the same, ours reads the peer's and finds the same."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from peer_tool import Pair, require_peer, run_oracle, save_pairs

from comparators import judge
from spool_reader.compare import compare_csv
from spool_reader.csv_views import write_csvs
from spool_reader.rows import encode_row

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("peer")]

APIS = ["mul", "exp", "matmul", "conv2d", "relu", "softmax", "topk", "bmm"]
# Columns of the compare details file whose words must agree, by place.
STATUS_COLUMNS = (2, 4, 6, 8, 10, 12, 14, 16, 18, 22, 24, 25, 26)


def _triples() -> list[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """API, device, reference, golden: clean, slightly wrong, wrong, and integer ones."""
    generator = torch.Generator().manual_seed(3)
    found = []
    for api in APIS:
        for dtype, wide in (
            (torch.float32, torch.float64),
            (torch.float16, torch.float32),
            (torch.bfloat16, torch.float32),
        ):
            for size in (1, 500):
                for error in (0.0, 3e-6, 1e-3, 0.1):
                    golden = torch.randn(size, generator=generator, dtype=torch.float64)
                    noise = torch.randn(size, generator=generator, dtype=torch.float64)
                    device = (golden * (1 + error * noise)).to(dtype)
                    found.append((api, device, golden.to(dtype), golden.to(wide)))
    for off in (0, 1):
        whole = torch.arange(10)
        found.append(("argmax", whole + off, whole, whole))
    return found


def _table(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        return [row[:28] for row in csv.reader(lines)]


def _words(path: Path) -> list[tuple[str, ...]]:
    return [(row[0], *(row[place].strip() for place in STATUS_COLUMNS)) for row in _table(path)[1:]]


def _results(path: Path) -> list[tuple[str, ...]]:
    return [tuple(word.strip() for word in row[:3]) for row in _table(path)[1:]]


def _rows(triples: list[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]], folder: Path) -> Path:
    """A results folder whose details hold device against golden, as both tools' details do; its details file."""
    folder.mkdir()
    lines = []
    for number, (api, device, reference, golden) in enumerate(triples):
        bench = golden if device.is_floating_point() else reference
        name = f"Torch.{api}.{number}"
        judged = judge(name, device, bench, bench, profile="msprobe-8.3")
        call = {"v": 1, "session": "s", "rank": 0, "step": 0, "seq": number, "api": name, "phase": "forward"}
        lines.append(encode_row({**call, "origin": None, **judged.to_json(), "device": "cpu"}))
    (folder / "results-rank0.jsonl").write_bytes(b"".join(lines))
    return write_csvs(folder, timestamp="20260101000000")[1]


def test_the_peer_reads_our_details_and_finds_the_same(tmp_path: Path) -> None:
    require_peer()
    triples = _triples()
    npu = _rows(triples, tmp_path / "npu")
    gpu = _rows([(api, reference, reference, golden) for api, _, reference, golden in triples], tmp_path / "gpu")
    run_oracle("compare", npu, gpu, tmp_path, folder=tmp_path)
    ours = compare_csv(npu, gpu, tmp_path / "ours", profile="msprobe-8.3")
    assert len(_words(ours.paths[1])) == len(triples)
    assert _words(ours.paths[1]) == _words(tmp_path / "peer_compare_details.csv")
    assert _results(ours.paths[0]) == _results(tmp_path / "peer_compare_result.csv")
    assert ours.counts["error"] > 10
    assert ours.counts["pass"] > 10


def test_we_read_the_peers_details_and_find_the_same(tmp_path: Path) -> None:
    require_peer()
    triples = _triples()
    for side, place in (("npu", 1), ("gpu", 2)):
        pairs: list[Pair] = []
        for number, triple in enumerate(triples):
            pairs.append((f"Torch.{triple[0]}.{number}", triple[place], triple[3]))
        (tmp_path / side).mkdir()
        run_oracle("details", *save_pairs(pairs, tmp_path, side), tmp_path / side, folder=tmp_path)
    npu, gpu = tmp_path / "npu" / "peer_details.csv", tmp_path / "gpu" / "peer_details.csv"
    run_oracle("compare", npu, gpu, tmp_path, folder=tmp_path)
    ours = compare_csv(npu, gpu, tmp_path / "ours", profile="msprobe-8.3")
    assert _words(ours.paths[1]) == _words(tmp_path / "peer_compare_details.csv")
    assert _results(ours.paths[0]) == _results(tmp_path / "peer_compare_result.csv")
    # Our own details of the same pairs hold the same figures. The peer prints single-precision ones in fewer digits.
    details = _rows(triples, tmp_path / "mine")
    for mine, theirs in zip(_table(details)[1:], _table(npu)[1:], strict=True):
        assert mine[:4] == theirs[:4]
        assert mine[21] == theirs[21].replace("Warning", "warning")
        for ours_, peers in zip(mine[4:21], theirs[4:21], strict=True):
            assert ours_ == peers or float(ours_) == pytest.approx(float(peers), rel=1e-3, abs=1e-13)

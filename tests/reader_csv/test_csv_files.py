"""The four CSV kinds: columns and order to the letter, cells, ours appended; and compare's bad input."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from comparators import judge
from spool import ConfigError
from spool_reader.compare import compare_csv
from spool_reader.csv_views import write_csvs
from spool_reader.rows import encode_row, skip_row

STAMP = "20260102030405"
RESULT = "API name,Forward Test Success,Backward Test Success,Message"
DETAILS = (
    "API Name,Bench Dtype,DEVICE Dtype,Shape,余弦相似度,最大绝对误差,双百指标,双千指标,双万指标,二进制一致错误率,误差均衡性,"
    "均方根误差,小值域错误占比,相对误差最大值,相对误差平均值,inf/nan错误率,相对误差错误率,绝对误差错误率,ULP误差最大值,"
    "ULP误差平均值,ULP误差大于阈值占比,Status,Message"
)
COMPARE = (
    "API Name,小值域错误比值,小值域判定结果,均方根误差比值,均方根误差判定结果,相对误差最大值比值,相对误差最大值判定结果,"
    "相对误差平均值比值,相对误差平均值判定结果,误差均衡性比值,误差均衡性判定结果,inf/nan错误率,inf/nan判定结果,"
    "相对误差错误率,相对误差判定结果,绝对误差错误率,绝对误差判定结果,二进制一致错误率,二进制一致错误率判定结果,"
    "ULP误差平均值,ULP误差大于阈值占比,ULP误差大于阈值占比比值,ULP误差判定结果,双千指标,双千指标判定结果,比对结果,比对算法,Message"
)


def _row(number: int, api: str, *outputs: object, rank: int = 0, phase: str = "forward") -> bytes:
    judged = judge(api, *outputs)
    call = {"v": 1, "session": "s", "rank": rank, "step": 2, "seq": number, "api": api, "phase": phase}
    return encode_row({**call, "origin": None, **judged.to_json(), "device": "cpu"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    x = torch.linspace(0.5, 2, 60).reshape(6, 10)
    rows = [
        _row(0, "Torch.exp.0", x.exp(), x.exp(), x.double().exp()),
        _row(1, "Torch.exp.1", x.exp() * 1.1, x.exp(), x.double().exp()),
        _row(2, "Torch.exp.2", x.exp()[:3], x.exp(), x.double().exp()),
        _row(3, "Torch.topk.0", torch.topk(x, 2), torch.topk(x, 2)),
        _row(4, "Aten.mm.0", x.T @ x, x.T @ x, x.double().T @ x.double(), phase="backward"),
        encode_row(skip_row(("s", 0, 2, 5), "Torch.rand.0", "forward", "random: rand", standard="benchmark")),
    ]
    (tmp_path / "results-rank0.jsonl").write_bytes(b"".join(rows))
    (tmp_path / "results-rank3.jsonl").write_bytes(_row(0, "Torch.mul.0", x, x, rank=3))
    return tmp_path


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        return list(csv.DictReader(lines))


def _header(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig").splitlines()[0]


def test_names_columns_and_order(folder: Path) -> None:
    paths = write_csvs(folder, timestamp=STAMP)
    kinds = {
        "accuracy_checking_result": RESULT,
        "accuracy_checking_details": DETAILS,
        "api_precision_compare_result": RESULT,
        "api_precision_compare_details": COMPARE,
    }
    assert [path.name for path in paths] == [f"{kind}_{STAMP}_rank{rank}.csv" for rank in (0, 3) for kind in kinds]
    for path, columns in zip(paths, [*kinds.values()] * 2, strict=True):
        assert _header(path).startswith(f"{columns},Step,Rank,Seq,")
    assert not list(folder.glob(".*.part"))


def test_cells(folder: Path) -> None:
    result, details, compare_result, compare = write_csvs(folder, timestamp=STAMP)[:4]
    words = {row["API name"]: (row["Forward Test Success"], row["Backward Test Success"]) for row in _table(result)}
    assert words["Torch.exp.0"] == ("pass", " ")
    assert words["Torch.exp.1"] == ("error", " ")
    assert words["Aten.mm.0"] == (" ", "pass")
    assert words["Torch.rand.0"] == ("SKIP", " ")
    rows = {row["API Name"]: row for row in _table(details)}
    good = rows["Torch.exp.0.forward.output.0"]
    assert good["Shape"] == "(6, 10)"
    assert (good["Bench Dtype"], good["DEVICE Dtype"]) == ("torch.float64", "torch.float32")
    assert good["余弦相似度"] == "1.00000000000000"
    assert good["双百指标"] == " "
    assert good["Accuracy Reached or Not"] == "Yes"
    bad = rows["Torch.exp.1.forward.output.0"]
    assert bad["Status"] == "error"
    assert float(bad["相对误差最大值"]) == pytest.approx(0.1, rel=1e-5)
    assert bad["Verdict"] == "error"
    assert rows["Torch.exp.2.forward.output.0"]["Accuracy Reached or Not"] == "Unmatched"
    assert rows["Torch.topk.0.forward.output.1"]["二进制一致错误率"] == "0.00000000000000"
    assert rows["Torch.rand.0.forward.output.0"]["Message"] == "random: rand"
    ratios = {row["API Name"]: row for row in _table(compare)}
    assert ratios["Torch.exp.0.forward.output.0"]["比对算法"] == "标杆比对法"
    assert ratios["Torch.exp.1.forward.output.0"]["相对误差最大值判定结果"] == "error"
    assert ratios["Torch.exp.2.forward.output.0"]["比对结果"] == "error"
    assert ratios["Aten.mm.0.backward.output.0"]["ULP误差判定结果"] == "pass"
    assert [row["API name"] for row in _table(compare_result)] == list(words)


def _cells(paths: list[Path]) -> list[list[str]]:
    found = []
    for path in paths:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            found += list(csv.reader(lines))[1:]
    return found


def test_english_columns_name_the_same_cells(folder: Path) -> None:
    chinese = _cells(write_csvs(folder, timestamp=STAMP))
    paths = write_csvs(folder, columns="en", timestamp=STAMP)
    assert all(_header(path).isascii() for path in paths)
    assert _cells(paths) == chinese


def test_unknown_language_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="zh, en"):
        write_csvs(folder, columns="de", timestamp=STAMP)


def test_compare_reads_our_details_in_both_languages(folder: Path, tmp_path: Path) -> None:
    for language in ("zh", "en"):
        details = write_csvs(folder, columns=language, timestamp=STAMP)[1]
        found = compare_csv(details, details, tmp_path / language)
        assert found.counts == {"SKIP": 1, "pass": 4, "warning": 0, "error": 1}
        assert found.failed == ["Torch.exp.2"]
        assert not found
        assert found.exit_code == 1
        assert "Torch.exp.2" in str(found)
        assert _header(found.paths[1]) == COMPARE


def test_compare_reports_rows_without_partner(folder: Path, tmp_path: Path) -> None:
    details = write_csvs(folder, timestamp=STAMP)[1]
    lines = details.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    short = tmp_path / "short.csv"
    short.write_text("".join(lines[:2]))
    found = compare_csv(details, short, tmp_path / "out")
    assert sum(found.counts.values()) == 6
    assert found.counts["SKIP"] == 5


BAD_FILES = {
    "no columns": ("a,b\n1,2\n", "columns lack"),
    "empty": ("", "columns lack"),
    "one column missing": (DETAILS.replace("均方根误差,", "") + "\n", "均方根误差"),
    "a row twice": (DETAILS + "\n" + "Torch.mul.0.forward.output.0\n" * 2, "is there twice"),
    "no output's name": (DETAILS + "\nTorch.mul.0\n", "no output's name"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_compare_refuses_bad_files(case: str, folder: Path, tmp_path: Path) -> None:
    text, said = BAD_FILES[case]
    details = write_csvs(folder, timestamp=STAMP)[1]
    bad = tmp_path / "bad.csv"
    bad.write_text(text, encoding="utf-8")
    for pair in ((bad, details), (details, bad)):
        with pytest.raises(ConfigError, match="bad") as caught:
            compare_csv(*pair, tmp_path / "out")
        assert said in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        compare_csv(details, tmp_path / "absent.csv", tmp_path / "out")
    bad.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        compare_csv(details, bad, tmp_path / "out")


def test_a_figure_edited_by_hand_is_named_and_the_other_rows_judged(folder: Path, tmp_path: Path) -> None:
    details = write_csvs(folder, timestamp=STAMP)[1]
    good = compare_csv(details, details, tmp_path / "good")
    with details.open(encoding="utf-8-sig", newline="") as lines:
        header, *table = list(csv.reader(lines))
    needed = [
        header.index(title)
        for title in ("均方根误差", "二进制一致错误率", "相对误差错误率", "ULP误差平均值", "双千指标")
    ]
    edited = tmp_path / "edited.csv"
    for place in needed:
        table[0][place] = "about 3"
    with edited.open("w", encoding="utf-8-sig", newline="") as lines:
        csv.writer(lines).writerows([header, *table])
    for pair in ((edited, details), (details, edited)):
        found = compare_csv(*pair, tmp_path / "out")
        if pair[0] == edited or found.unread:
            [said] = found.unread
            assert said.startswith(table[0][0])
            assert "is 'about 3', no number; was the file edited?" in said
            assert said in str(found)
            assert found.exit_code in (1, 3)
            assert sum(found.counts.values()) == sum(good.counts.values())

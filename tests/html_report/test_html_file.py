"""The HTML report as a file: whole, harmless whatever the rows hold, and clear about what it cannot show."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from batch_spools import add_call, fill
from click.testing import CliRunner, Result
from processes import ROOT, environment
from report_rows import CALLS, SINCE, packed, row, training, write_rows

from cli import main
from spool_reader.events import Notice
from spool_reader.html_report import write_report
from spool_reader.summary import summarise
from spool_reader.watch import reprocess

INJECTION = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{7*7}}"
ESCAPES = "\x1b[2J\x1b]0;owned\x07\u202egnol\ud800\x00"


def run(*words: Any) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


class Tags(HTMLParser):
    """The tags of a page, and the text outside of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] not in ("script", "style"):
            self.text += f"{data} "


def test_report_html_writes_one_file_that_names_the_first_divergence(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "results", training())
    done = run("report", folder, "--html")
    assert done.exit_code == 1
    assert f"report: {folder / 'report.html'}" in done.output
    assert done.output.splitlines()[-1] == "RESULT FAIL: 4 error, 28 pass, 8 skip"
    seen = " ".join(Tags((folder / "report.html").read_text()).text.split())
    assert "First divergence in execution order: Functional.layer_norm.0 forward, rank 0, step 2, seq 1" in seen
    assert "Functional.layer_norm 4 / 8 40× step 2, seq 1 2-3 0-1" in seen
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_the_page_holds_every_call_and_the_rows_of_those_that_fail(tmp_path: Path) -> None:
    rows = training()
    page = write_report(rows, summarise(rows), tmp_path).read_text()
    [data] = packed(page, "data")
    columns, names = data["columns"], data["names"]
    found = [
        (names["session"][s], rank, step, seq, names["api"][a], data["verdicts"][v])
        for s, rank, step, seq, a, v in zip(
            *(columns[name] for name in ("session", "rank", "step", "seq", "api", "verdict")), strict=True
        )
    ]
    assert found == [tuple(r[name] for name in ("session", "rank", "step", "seq", "api", "verdict")) for r in rows]
    failing = [at for at, r in enumerate(rows) if r["verdict"] == "error"]
    assert data["opening"] == failing
    opened = [detail for piece in packed(page, "pieces") for detail in piece]
    assert [detail["outputs"][0]["ratio"] for detail in opened] == [rows[at]["outputs"][0]["ratio"] for at in failing]
    assert opened[0]["outputs"][0]["worst"] == {"index": [1, 2], "device": 2.5, "reference": 1.5}


def test_the_page_asks_nobody_for_anything(tmp_path: Path) -> None:
    rows = training()
    tags = Tags(write_report(rows, summarise(rows), tmp_path).read_text()).tags
    policy = next(attrs["content"] or "" for tag, attrs in tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy.split("style-src")[0]
    links = [(tag, attrs.get(name)) for tag, attrs in tags for name in ("src", "href", "action") if name in attrs]
    assert [link for link in links if not (link[1] or "").startswith(("#", "data:"))] == []


def test_the_policy_names_the_script_that_the_page_holds(tmp_path: Path) -> None:
    page = html.unescape(write_report([], summarise([]), tmp_path).read_text())
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert (len(script), f"'sha256-{digest}'" in page) == (1, True)


@pytest.mark.parametrize("text", [INJECTION, ESCAPES, INJECTION + ESCAPES], ids=["html", "escapes", "both"])
def test_texts_of_rows_stay_texts(text: str, tmp_path: Path) -> None:
    bad = row(
        api=f"Functional.{text}.0",
        ratio=9.0,
        message=text,
        session=text,
        phase=text,
        standard=text,
        origin=text,
        notes=[text],
        reproduce=text,
        known=[text],
        output={"dtype": text, "path": text, "metrics": {text: text}, "checks": [[text, text, text, False]]},
    )
    folder = write_rows(tmp_path / "results", [bad, *training(1, 1)[1:]])
    done = run("report", folder, "--html")
    assert done.exit_code == 1, done.output
    page = (folder / "report.html").read_text(encoding="utf-8")
    plain = Tags(page)
    assert [tag for tag, _ in plain.tags if tag == "img"] == []
    assert len([tag for tag, _ in plain.tags if tag == "script"]) == 4
    shown = json.dumps([packed(page, "data"), packed(page, "pieces")], ensure_ascii=False) + plain.text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", shown)
    if "{{" in text:
        assert text[:20] in plain.text
        assert "{{7*7}}" in shown


NOTHING: dict[str, tuple[dict[str, bytes], str, int]] = {
    "empty folder": ({}, "holds no results-rank*.jsonl", 5),
    "empty file": ({"results-rank0.jsonl": b""}, "", 5),
    "only a torn line": ({"results-rank0.jsonl": b'{"v": 1, "session": "s"'}, "", 5),
}


@pytest.mark.parametrize("name", sorted(NOTHING))
def test_nothing_to_show_is_said_and_is_no_pass(name: str, tmp_path: Path) -> None:
    files, words, code = NOTHING[name]
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    done = run("report", tmp_path, "--html")
    assert done.exit_code == code, done.output
    page = Tags((tmp_path / "report.html").read_text()).text
    assert "NOTHING CHECKED" in page
    assert "No call was judged" in page
    assert words in page


def test_cut_off_and_damaged_lines_are_told_and_the_rest_is_shown(tmp_path: Path) -> None:
    folder = write_rows(tmp_path, training(1, 3))
    file = folder / "results-rank0.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    infinite = lines[0].replace(b'"step":0', b'"step":1e999')
    damaged = [b"\xff{\n", b'{"v": 1, "rank": 0}\n', infinite, b'{"v": 9}\n']
    file.write_bytes(b"".join([*lines[:4], *damaged, *lines[4:], lines[0][:50]]))
    done = run("report", folder, "--html")
    assert done.exit_code == 1
    page = (folder / "report.html").read_text()
    assert "3 lines are no rows" in page
    assert "1 rows of format 9" in page
    assert len(packed(page, "data")[0]["columns"]["seq"]) == 3 * len(CALLS)


ODD: dict[str, dict[str, Any]] = {
    "no outputs": {"outputs": []},
    "checks of other shapes": {"output": {"checks": [1, ["a"], None, {"b": 2}], "metrics": [], "worst": {}}},
    "numbers that are not finite": {"output": {"ratio": "inf", "metrics": {"max_abs_err": "nan"}, "worst": None}},
    "a huge step": {"step": 2**80, "seq": -5},
    "a huge number": {"output": {"ratio": 10**400}, "timings": {"total": 10**400}},
    "very long texts": {"message": "m" * 100_000, "notes": ["n" * 100_000] * 200},
    "deep nesting": {"notes": [[[[[[[[[["deep"]]]]]]]]]], "message": "\n"},
    "api without a number": {"api": "odd"},
}


@pytest.mark.parametrize("name", sorted(ODD))
def test_odd_rows_are_shown_as_far_as_they_go(name: str, tmp_path: Path) -> None:
    folder = write_rows(tmp_path, [row(**{"ratio": 3.0, **ODD[name]}), row(seq=1)])
    done = run("report", folder, "--html")
    assert done.exit_code == 1, done.output
    page = (folder / "report.html").read_text()
    assert len(packed(page, "data")[0]["columns"]["seq"]) == 2
    assert len(packed(page, "pieces")[0]) == 1
    assert len(page) < 1_000_000


def test_several_folders_need_a_place(tmp_path: Path) -> None:
    one, two = (write_rows(tmp_path / name, training(1, 3)) for name in ("one", "two"))
    refused = run("report", one, two, "--html")
    assert (refused.exit_code, "--out is missing" in refused.output) == (2, True)
    assert run("report", one, two, "--html", "--out", tmp_path / "both").exit_code == 1
    assert (tmp_path / "both" / "report.html").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "results", training(1, 1))
    (tmp_path / "file").write_text("")
    done = run("report", folder, "--html", "--out", tmp_path / "file")
    assert (done.exit_code, "give another --out" in done.output, "Traceback" in done.output) == (3, True, False)


def test_without_the_extra_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    folder = write_rows(tmp_path, training(1, 1))
    # A name that is None in sys.modules cannot be found, as if the package were not there.
    code = f"import sys; sys.modules['bokeh'] = None; from cli import main; main(['report', {str(folder)!r}, '--html'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2
    assert (
        done.stderr == "error: the HTML report needs bokeh, which is not installed: pip install 'spool-check[report]'\n"
    )
    assert not (folder / "report.html").exists()


def test_a_selection_narrows_the_page(tmp_path: Path) -> None:
    folder = write_rows(tmp_path, training())
    assert run("report", folder, "--html", "--step", SINCE, "--rank", 1).exit_code == 1
    [data] = packed((folder / "report.html").read_text(), "data")
    assert (set(data["columns"]["step"]), set(data["columns"]["rank"])) == ({SINCE}, {1})


def leftover(tmp_path: Path) -> Path:
    fill(tmp_path / "spool", [add_call(0, step, seq, off=0.5 * step) for step in range(2) for seq in range(3)])
    return tmp_path / "spool"


def test_a_run_ends_with_a_page_of_its_rows(tmp_path: Path) -> None:
    summary = reprocess(leftover(tmp_path), out=tmp_path / "out", workers=0, device="cpu")
    assert summary.reports[-1] == str(tmp_path / "out" / "report.html")
    page = (tmp_path / "out" / "report.html").read_text()
    assert len(packed(page, "data")[0]["columns"]["seq"]) == 6
    opened = [detail for piece in packed(page, "pieces") for detail in piece]
    assert [detail["arguments"] for detail in opened] == [
        [["args[0]", "float32", [3]], ["args[1]", "float32", [3]]]
    ] * 3
    assert [detail["outputs"][0]["spread"]["errors"] for detail in opened] == [[[-1, 3]]] * 3


def test_a_page_that_cannot_be_written_does_not_cost_the_verdict(tmp_path: Path) -> None:
    spool = leftover(tmp_path)
    (tmp_path / "out" / "report.html").mkdir(parents=True)
    said: list[Any] = []
    summary = reprocess(spool, out=tmp_path / "out", workers=0, device="cpu", on_event=said.append)
    assert (summary.failed, summary.exit_code) == (3, 1)
    [warning] = [event.text for event in said if isinstance(event, Notice) and event.level == "warning"]
    assert warning.startswith(f"the HTML report was not written: {tmp_path / 'out' / 'report.html'}")


def test_a_run_without_the_extra_ends_as_always(tmp_path: Path) -> None:
    words = ["reprocess", str(leftover(tmp_path)), "--out", str(tmp_path / "out"), "--workers", "0", "--device", "cpu"]
    code = f"import sys; sys.modules['jinja2'] = None; from cli import main; main({words!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "RESULT FAIL: 3 error, 3 pass")
    assert not (tmp_path / "out" / "report.html").exists()

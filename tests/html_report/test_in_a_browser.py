"""The HTML report in a real Chromium: what people click, type and see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_rows import CALLS, SINCE, row, training

from spool_reader.html_report import write_report
from spool_reader.summary import summarise

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
Visit = Callable[..., Any]
ALL = 2 * 4 * len(CALLS)
INJECTION = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{7*7}}"


def report(tmp_path: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    rows = training() if rows is None else rows
    for item in rows:
        if item["verdict"] == "error":
            item["arguments"] = [["args[0]", "float32", [4, 8]], ["kwargs.eps", "1e-05"]]
            item["reproduce"] = "spool-check replay saved.safetensors"
            item["outputs"][0]["spread"] = {
                "errors": [[-5, 3], [-3, 29]],
                "equal": 0,
                "special": 0,
                "by_magnitude": [[-1, 30, 0.01, 0.001], [0, 2, 0.1, 0.1]],
            }
    return write_report(rows, summarise(rows), tmp_path)


def count(page: Any) -> str:
    return str(page.inner_text("#count"))


def shown(page: Any, column: int) -> list[str]:
    """The cells of a column that are in sight."""
    return list(page.locator(f"#calls .row > :nth-child({column})").all_inner_texts())


def settled(page: Any, text: str) -> None:
    """Filters wait for the end of typing."""
    page.wait_for_function("text => document.getElementById('count').textContent === text", arg=text)


def test_the_first_divergence_opens_with_everything_about_it(tmp_path: Path, visit: Visit) -> None:
    page = visit(report(tmp_path))
    assert page.inner_text("#verdict").startswith("FAIL")
    page.click("#first button")
    detail = page.locator("#detail")
    assert detail.locator("#detail-title").inner_text() == "Functional.layer_norm.0"
    text = detail.inner_text()
    for part in ("rank 0, step 2, seq 1, forward", "benchmark, two-way", "[1, 2]", "2.5", "args[0]", "[4, 8]", "1e-05"):
        assert part in text
    lines = [line.split() for line in detail.locator(".checks tbody tr").all_inner_texts()]
    assert lines == [["max_abs_err", "4", "1", "FAIL"], ["rmse_ratio", "0.5", "2", "ok"]]
    assert detail.locator("#reproduce").inner_text() == "spool-check replay saved.safetensors"
    page.wait_for_function("() => document.querySelectorAll('#detail .spread .bk-Figure').length === 2")


def test_the_map_shows_the_worst_of_each_place_and_leads_to_its_calls(tmp_path: Path, visit: Visit) -> None:
    page = visit(report(tmp_path))
    rows = [text.split() for text in page.locator("#map tbody tr").all_inner_texts()]
    assert rows[0] == ["Functional.layer_norm", "P", "P", "E", "E"]
    assert rows[-1] == ["Torch.randint", "S", "S", "S", "S"]
    colours = page.eval_on_selector_all("#map tbody tr:first-child td", "cells => cells.map(c => c.style.background)")
    assert len(set(colours)) == 3
    page.click("#map tbody tr:first-child td:nth-of-type(4)")
    settled(page, f"2 of {ALL} calls")
    assert shown(page, 5) == ["Functional.layer_norm.0"] * 2
    assert page.input_value("#f-step") == "3"
    page.check("input[name=axis][value=rank]")
    assert page.inner_text("#map thead tr").split() == ["API", "\\", "rank", "0", "1"]
    assert page.locator("#map tbody tr").first.inner_text().split() == ["Functional.layer_norm", "E", "E"]


def test_the_map_works_with_the_keyboard(tmp_path: Path, visit: Visit) -> None:
    page = visit(report(tmp_path))
    page.focus("#map td[tabindex='0']")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    settled(page, f"2 of {ALL} calls")
    assert (page.input_value("#f-step"), shown(page, 1)) == (str(SINCE), ["E error"] * 2)


FILTERS: dict[str, tuple[dict[str, str], int]] = {
    "a rank": ({"#f-rank": "1"}, ALL // 2),
    "steps": ({"#f-step": "0, 2-3"}, ALL * 3 // 4),
    "steps that are not there": ({"#f-step": "99"}, 0),
    "a word": ({"#f-text": "LAYER_NORM"}, 8),
    "words of different columns": ({"#f-text": "layer exceeds"}, 4),
    "a session": ({"#f-text": "run1-rank1"}, ALL // 2),
    "all together": ({"#f-text": "gelu", "#f-rank": "0", "#f-step": "1"}, 2),
}


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_filters_leave_what_they_say(name: str, tmp_path: Path, visit: Visit) -> None:
    fields, left = FILTERS[name]
    page = visit(report(tmp_path))
    assert count(page) == f"{ALL} of {ALL} calls"
    for field, value in fields.items():
        page.fill(field, value)
    settled(page, f"{left} of {ALL} calls")
    assert len(shown(page, 1)) == min(left, len(shown(page, 1)))
    page.click("#f-clear")
    settled(page, f"{ALL} of {ALL} calls")


def test_choices_filter_by_verdict_dtype_phase_and_api(tmp_path: Path, visit: Visit) -> None:
    page = visit(report(tmp_path))
    page.select_option("#f-phase", label="backward")
    settled(page, f"8 of {ALL} calls")
    page.select_option("#f-phase", label="both")
    page.select_option("#f-dtype", label="bfloat16")
    settled(page, f"8 of {ALL} calls")
    page.select_option("#f-dtype", label="all")
    page.select_option("#f-operator", label="Functional.layer_norm")
    page.uncheck("#f-verdicts label.pass input")
    settled(page, f"4 of {ALL} calls")
    assert set(shown(page, 1)) == {"E error"}
    page.fill("#f-rank", "x")
    page.wait_for_selector("#f-rank[aria-invalid=true]")
    assert count(page) == f"4 of {ALL} calls"


def test_sorting_goes_both_ways_and_back_to_execution_order(tmp_path: Path, visit: Visit) -> None:
    page = visit(report(tmp_path))
    order = [shown(page, 3)[:6], shown(page, 4)[:6]]
    head = "#calls [data-column=ratio] button"
    page.click(head)
    assert shown(page, 6)[:5] == ["40×", "40×", "4×", "4×", "0.25×"]
    assert page.get_attribute("#calls [data-column=ratio]", "aria-sort") == "descending"
    page.click(head)
    assert shown(page, 6)[0] == ""
    page.click(head)
    assert [shown(page, 3)[:6], shown(page, 4)[:6]] == order
    page.click("#calls [data-column=api] button")
    assert shown(page, 5)[0] == "Aten.gelu_backward.0"


def test_the_table_works_with_the_keyboard(tmp_path: Path, visit: Visit) -> None:
    page = visit(report(tmp_path))
    page.focus("#calls")
    for key in ("End", "Home", "ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("#detail:not([hidden])")
    assert page.inner_text("#detail-title") == "Functional.layer_norm.0"
    assert "this page holds those of failing calls" in page.inner_text("#detail")
    page.keyboard.press("Escape")
    assert page.is_hidden("#detail")
    assert page.evaluate("document.activeElement.id") == "calls"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "f-text"


def test_the_origin_of_a_backward_call_is_one_click_away(tmp_path: Path, visit: Visit) -> None:
    rows = training()
    rows[3] = row(0, 0, 3, CALLS[3], ratio=7.0)
    page = visit(report(tmp_path, rows))
    page.click("#first button")
    page.click("#detail dl button.call")
    settled(page, f"1 of {ALL} calls")
    assert (shown(page, 5), page.is_hidden("#detail")) == (["Functional.gelu.0"], True)


def test_charts_follow_the_chosen_api(tmp_path: Path, visit: Visit) -> None:
    page = visit(report(tmp_path))
    assert page.locator("#time .bk-Figure").count() == page.locator("#dtype .bk-Figure").count() == 1
    assert page.get_attribute("#time", "aria-label") == "Functional.layer_norm: 2 lines, worst 40× its limit"
    page.select_option("#time-operator", label="Functional.gelu")
    page.wait_for_selector("#time[aria-label='Functional.gelu: 2 lines, worst 0.25× its limit']")
    assert page.get_attribute("#dtype", "aria-label").startswith("float32: 4 of 24 calls over the limit, worst 40×")


def test_texts_of_rows_are_shown_and_never_run(tmp_path: Path, visit: Visit) -> None:
    texts = dict.fromkeys(("message", "session", "phase", "standard", "origin"), INJECTION)
    bad = row(api=f"Functional.{INJECTION}.0", ratio=9.0, notes=[INJECTION], output={"path": INJECTION}, **texts)
    page = visit(report(tmp_path, [bad]))
    page.click("#first button")
    assert page.inner_text("#detail-title") == f"Functional.{INJECTION}.0"
    assert page.locator("img").count() == 0
    assert shown(page, 9) == [INJECTION]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(dark: bool, tmp_path: Path, visit: Visit) -> None:
    page = visit(report(tmp_path), width=390, dark=dark)
    wide = "[document.documentElement, document.querySelector('#calls')].map(e => e.scrollWidth - e.clientWidth)"
    assert page.evaluate(wide) == [0, 0]
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is not dark
    page.click("#first button")
    assert page.evaluate(wide)[0] == 0
    assert page.locator("#detail").bounding_box()["width"] == 390


def test_a_hundred_thousand_calls_scroll_with_few_elements(tmp_path: Path, visit: Visit) -> None:
    rows = [row(rank, step, seq, f"Torch.mul.{seq}") for rank in range(4) for step in range(50) for seq in range(500)]
    page = visit(report(tmp_path, rows))
    assert count(page) == "100000 of 100000 calls"
    assert page.locator("#calls .row").count() < 60
    page.focus("#calls")
    page.keyboard.press("End")
    page.wait_for_selector("#calls .row.chosen")
    assert (shown(page, 4)[-1], shown(page, 3)[-1]) == ("499", "49")
    page.fill("#f-text", "mul.77")
    settled(page, "200 of 100000 calls")
    page.click("#calls [data-column=rank] button")
    assert shown(page, 2)[0] == "0"


def test_an_empty_report_says_so(tmp_path: Path, visit: Visit) -> None:
    page = visit(report(tmp_path, []))
    assert "NOTHING CHECKED" in page.inner_text("header")
    assert page.inner_text("#calls .none") == "There are no rows."


def test_a_browser_that_is_too_old_is_told(tmp_path: Path, visit: Visit) -> None:
    page = visit(report(tmp_path), script="delete window.DecompressionStream", ready="")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "this browser is too old" in page.inner_text("#trouble")
    assert "First divergence in execution order" in page.inner_text("header")


def test_known_differences_and_warnings_have_letters_of_their_own(tmp_path: Path, visit: Visit) -> None:
    known = row(0, 0, 0, ratio=3.0, verdict="known", known=["ours to live with"], message="known: ours to live with")
    page = visit(report(tmp_path, [known, row(0, 0, 1, "Torch.exp.0", ratio=1.2, verdict="warning")]))
    assert sorted(text.split()[1] for text in page.locator("#map tbody tr").all_inner_texts()) == ["K", "W"]
    assert page.inner_text("#verdict").split() == ["PASS", "W", "1", "warning", "K", "1", "known"]
    page.click("#calls .row:has-text('known')")
    page.wait_for_selector("#detail:not([hidden])")
    assert "ours to live with" in page.inner_text("#detail dl")

"""The HTML report of many calls: how long it takes to make, how large it is, and how it opens and scrolls in Chromium.

The rows are copies of one judged call, spread over ranks, steps and APIs, one in a hundred failing. Opening is timed from the
request for the file until the table and the map are there (`table`) and until the charts are (`all`); scrolling goes through
the whole table in two hundred leaps, and the longest wait for a picture counts. Without playwright and Chromium only the
making is measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from spool import Bundle
from spool_reader.device import Device
from spool_reader.html_report import write_report
from spool_reader.judging import Judge, JudgeOptions
from spool_reader.merging import Merged
from spool_reader.rows import encode_row
from spool_reader.summary import summarise

RANKS, STEPS, APIS = 8, 50, 60
SCROLL = """async () => {
  const table = document.getElementById("calls");
  let longest = 0;
  for (let leap = 0; leap <= 200; leap++) {
    table.scrollTop = (table.scrollHeight * leap) / 200;
    const start = performance.now();
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    longest = Math.max(longest, performance.now() - start);
  }
  return longest;
}"""
FILTER = """async () => {
  const start = performance.now();
  filterFields({ text: "mul exceeds" });
  await new Promise((done) => requestAnimationFrame(done));
  return performance.now() - start;
}"""


def judged(off: float) -> dict[str, Any]:
    """The row of one call, `off` by so much."""
    x = torch.rand(64, 64, generator=torch.Generator().manual_seed(0))
    bundle = Bundle.build(
        session="bench", rank=0, step=0, seq=0, api="Torch.mul.0", phase="forward", args=(x, x), kwargs={},
        result=x * x + off, mutated={}, context={}, producer={"device": "npu:0"}, time=0.0,
    )  # fmt: skip
    return Judge(Device(), JudgeOptions()).row(bundle)


def fill(folder: Path, count: int) -> None:
    """A results folder of so many rows."""
    good, bad = judged(0.0), judged(0.5)
    for rank in range(RANKS):
        with (folder / f"results-rank{rank}.jsonl").open("wb") as file:
            for number in range(count // RANKS):
                step, seq = number * STEPS // (count // RANKS), number
                row = bad if number % 100 == 99 else good
                file.write(
                    encode_row({**row, "rank": rank, "step": step, "seq": seq, "api": f"Torch.mul{seq % APIS}.{seq}"})
                )


def opened(path: Path) -> None:
    """Open the report and say how it went."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("opening: not measured, playwright or Chromium is missing")
        return
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        # The first page of a browser pays for its start.
        browser.new_page().goto("about:blank")
        page = browser.new_page()
        times = {}
        start = time.perf_counter()
        page.goto(path.as_uri(), wait_until="commit")
        for state, selector in (("table", "html[data-ready]"), ("all", "html[data-ready=all]")):
            page.wait_for_selector(selector, state="attached")
            times[state] = time.perf_counter() - start
        print(f"opening: table {times['table']:.2f} s, all {times['all']:.2f} s")
        print(
            f"scrolling: longest wait {page.evaluate(SCROLL):.0f} ms; filtering by two words: {page.evaluate(FILTER):.0f} ms"
        )
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, nargs="+", default=[10_000, 100_000])
    for count in parser.parse_args().calls:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            fill(folder, count)
            merged = Merged([folder])
            start = time.perf_counter()
            summary = summarise(merged.rows())
            read = time.perf_counter() - start
            path = write_report(merged.rows(), summary, folder)
            made = time.perf_counter() - start - read
            size = path.stat().st_size
            print(f"{summary.rows} calls: reading {read:.1f} s, making {made:.1f} s, {size / 1e6:.2f} MB")
            opened(path)


if __name__ == "__main__":
    main()

"""A real Chromium, headless and without network, that opens reports."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking".split()
_FLAGS += ["--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The browser; skips with the reason where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("no Chromium here: install one (Debian: apt-get install chromium), or name it in CHROMIUM=")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=path, args=_FLAGS, headless=True)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """`visit(path, width=…, dark=…)` opens a report and waits until it is drawn. At the end: no error, no request, no dialog."""
    faults: list[str] = []
    contexts = []

    def opened(path: Path, *, width: int = 1280, dark: bool = False, script: str = "", ready: str = "all") -> Any:
        context = browser.new_context(
            offline=True, viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
        page.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda asked: None if asked.url.startswith("file:") else _other(asked.url, faults))
        if script:
            page.add_init_script(script)
        page.goto(path.as_uri())
        if ready:
            page.wait_for_selector(f"html[data-ready={ready}]", state="attached")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def _other(url: str, faults: list[str]) -> None:
    # What a page makes itself has no server.
    if not url.startswith(("data:", "blob:")):
        faults.append(f"request: {url}")

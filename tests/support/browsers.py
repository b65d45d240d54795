"""A real browser for the tests of pages; where there is none, the tests say so and are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Tab:
    """A page that is open in a browser without a network, and all that it did but should not have.

    Attributes:
        page: The page of playwright.
        problems: Lines of its console, exceptions and dialogs.
        requests: All that it asked for but itself.
    """

    def __init__(self, context: Any, path: Path, anchor: str = "") -> None:
        self.page: Any = context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        address = path.as_uri()
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on(
            "dialog", lambda dialog: (self.problems.append(f"dialog {dialog.message}"), dialog.dismiss())
        )
        self.page.on(
            "request", lambda one: None if one.url.split("#")[0] == address else self.requests.append(one.url)
        )
        self.page.goto(address + anchor)
        self.page.wait_for_selector("html[data-ready]", timeout=60_000)

    def names(self) -> list[str]:
        """Return the names of the rows that are drawn, in full."""
        cells = self.page.eval_on_selector_all(
            "#grid .line",
            "(all) => all.map((one) => [Number(one.dataset.place), one.querySelector('.sticky').title])",
        )
        return [name for _, name in sorted(cells)]

    def count(self) -> int:
        """Return the number of rows that match the filters."""
        return int(self.page.get_attribute("#grid", "aria-rowcount")) - 1

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; the page's policy forbids playwright to wait within the page."""
        for _ in range(200):
            if condition():
                return
            self.page.wait_for_timeout(50)
        raise AssertionError("it did not come to be")

    def check(self) -> None:
        """Check that nothing went wrong and nothing was asked for."""
        assert self.problems == [] and self.requests == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A chromium without a window; playwright's event loop runs until it is closed, and is in others' way."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()

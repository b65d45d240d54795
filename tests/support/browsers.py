"""A real browser for the tests of pages; where there is none, the tests say so and are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const ground = (element) => { for (let e = element; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    if (!element.checkVisibility() || element.disabled || !["", ...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    if (["SCRIPT", "STYLE", "OPTION", "DATALIST"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(parse(style.color)), light(ground(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)} ${element.textContent.slice(0, 30)}`);
  }
  return [...new Set(poor)];
}"""
"""Script that returns the elements whose text has less contrast than WCAG AA asks for."""

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
        hears: dict[str, Callable[[Any], object]] = {
            "console": lambda message: self.problems.append(message.text),
            "pageerror": lambda error: self.problems.append(str(error)),
            "dialog": lambda dialog: (self.problems.append(f"dialog {dialog.message}"), dialog.dismiss()),
            "request": lambda one: None if one.url.split("#")[0] == address else self.requests.append(one.url),
        }
        for event, hear in hears.items():
            self.page.on(event, hear)
        if isinstance(context, UsedContext):
            context.heard_by = hears
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


class UsedContext:
    """A context with one page, which the next test uses after this one: a new page costs 1 s of CPU time."""

    def __init__(self, context: Any, options: dict[str, Any], free: list[UsedContext]) -> None:
        self.heard_by: dict[str, Callable[[Any], object]] = {}
        self._page: Any = context.new_page()
        self._options, self._free = options, free

    def new_page(self) -> Any:
        """Return its page, in which nothing is open."""
        return self._page

    def close(self) -> None:
        """Leave the page as it was before, for the next test."""
        for event, hear in self.heard_by.items():
            self._page.remove_listener(event, hear)
        self.heard_by = {}
        self._page.mouse.move(0, 0)
        self._page.goto("about:blank")
        if "viewport" in self._options:
            self._page.set_viewport_size(self._options["viewport"])
        self._free.append(self)


class UsedBrowser:
    """A browser whose contexts are used again by tests that ask for the same options."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._free: dict[str, list[UsedContext]] = {}

    def new_context(self, **options: Any) -> UsedContext:
        """Return a context that nobody uses, a new one if there is none."""
        free = self._free.setdefault(repr(sorted(options.items())), [])
        return free.pop() if free else UsedContext(self._browser.new_context(**options), options, free)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._browser, name)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A chromium without a window; playwright's event loop runs until it is closed, and is in others' way."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield UsedBrowser(opened)
        opened.close()


Open = Callable[..., Tab]


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """``opened(path)``: the page in a tab; in the end, nothing went wrong in any."""
    tabs: list[Tab] = []
    contexts: list[Any] = []

    def open_page(path: Path, anchor: str = "", width: int = 1280, scheme: str = "light") -> Tab:
        size = {"width": width, "height": 900}
        contexts.append(browser.new_context(viewport=size, color_scheme=scheme, offline=True, reduced_motion="reduce"))
        tabs.append(Tab(contexts[-1], path, anchor))
        return tabs[-1]

    yield open_page
    for tab in tabs:
        tab.check()
    for context in contexts:
        context.close()

"""Benchmark of pages: ``python page.py [ROWS …]`` (10,000 and 100,000 rows of statistics by default).

For each size: the bytes of the page, the CPU time that it adds to the comparison, and in a browser without a
network the milliseconds from navigation to the verdict and to a table that can be used, the CPU time of the
browser's main thread until then, and the longest frame while scrolling through all rows.

It needs torch, which makes the runs, and playwright with a chromium (CHROMIUM, or one on the path).
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from compare_runs import PROBE, REPEATS, measure
from make_runs import make

SIZES = (10_000, 100_000)
NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMES = """["first-contentful-paint", "usable"].map(
  (name) => performance.getEntriesByName(name)[0]?.startTime ?? NaN)"""
SCROLL = """async () => {
  const grid = document.getElementById("grid");
  const frames = [];
  let last = performance.now();
  for (let step = 0; step <= 120; step++) {
    grid.scrollTop = (grid.scrollHeight * step) / 120;
    await new Promise((done) => requestAnimationFrame(done));
    const now = performance.now();
    frames.push(now - last);
    last = now;
  }
  return Math.max(...frames.slice(1));
}"""


def main() -> None:
    sizes = [int(argument) for argument in sys.argv[1:]] or list(SIZES)
    with tempfile.TemporaryDirectory(prefix="probe-page-", dir=os.environ.get("PROBE_BENCH")) as there:
        for rows in sizes:
            home = Path(there) / str(rows)
            make(home, "stat", rows // 5)
            browse(compare(home, rows))


def compare(home: Path, rows: int) -> Path:
    """Compare with and without a page in turn, print the costs, and return the page."""
    costs: dict[str, list[float]] = {"xlsx": [], "xlsx,html": []}
    for number in range(REPEATS):
        for formats, found in costs.items():
            out = home / f"out-{formats}-{number}"
            command = [*PROBE, "compare", str(home / "npu"), str(home / "bench"), "-o", str(out)]
            found.append(measure([*command, "--format", formats, "-j", "1"]).cpu)
    without, with_page = (statistics.median(found) for found in costs.values())
    (page,) = (home / f"out-xlsx,html-{REPEATS - 1}").rglob("*.html")
    print(f"{rows:,} rows: {page.stat().st_size:,} bytes; {without:.2f} CPU s without the page, "
          f"{with_page:.2f} with it: {with_page / without - 1:+.1%}")  # fmt: skip
    return page


def browse(page: Path) -> None:
    """Open a page, and print how long each part takes."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("  playwright is not installed: not opened")
        return
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        print("  no chromium: not opened")
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        found: dict[str, list[float]] = {}
        for _ in range(REPEATS):
            for name, value in visit(browser, page).items():
                found.setdefault(name, []).append(value)
        browser.close()
    print("  " + "; ".join(f"{name} {statistics.median(values):,.0f} ms" for name, values in found.items()))


def visit(browser: Any, page: Path) -> dict[str, float]:
    """Return the milliseconds of one visit."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    tab = context.new_page()
    session = context.new_cdp_session(tab)
    session.send("Performance.enable")
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-ready]", timeout=120_000)
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    paint, usable = tab.evaluate(TIMES)
    frame = tab.evaluate(SCROLL)
    context.close()
    return {
        "verdict painted": paint,
        "table usable": usable,
        "CPU of the main thread": 1000 * (metrics["TaskDuration"]),
        "longest frame": frame,
    }


if __name__ == "__main__":
    main()

"""Benchmark of pages: ``python page.py [KIND …]``.

The kinds are:

* demo: the runs that ``probe demo`` compares.
* ranks: two ranks of 500 calls each; the page over both is opened.
* gpt2: a GPT-2 of random weights, forward and backward, with tensors; about 10,000 rows. It needs
  transformers.
* rows: 100,000 rows of statistics. A number in place of it makes so many rows.

For each: the bytes of the page, the CPU time that it adds to a comparison that writes xlsx, and in a browser
without a network the milliseconds from navigation to the verdict and to a table that can be used, the CPU
time of the browser's main thread until then, and the most of it that a frame takes while scrolling through
all rows. A page is smooth if that is below 100 ms; the time that passes depends on what else runs.

It needs torch, which makes the runs, and playwright with a chromium (CHROMIUM, or one on the path).
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from compare_runs import PROBE, REPEATS, measure
from make_runs import make
from probe_pytorch.demo import unpack

KINDS = ("demo", "ranks", "gpt2", "rows")
NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMES = """["first-contentful-paint", "usable"].map(
  (name) => performance.getEntriesByName(name)[0]?.startTime ?? NaN)"""
FRAMES = 60
SCROLL = f"""(step) => new Promise((done) => {{
  const grid = document.getElementById("grid");
  if (grid) grid.scrollTop = (grid.scrollHeight * step) / {FRAMES};
  requestAnimationFrame(() => requestAnimationFrame(() => done()));
}})"""
LAYERS = 32


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="probe-page-", dir=os.environ.get("PROBE_BENCH")) as there:
        for kind in sys.argv[1:] or KINDS:
            home = Path(there) / kind
            home.mkdir()
            browse(compare(home, kind, *make_sides(home, kind)))


def make_sides(home: Path, kind: str) -> tuple[Path, Path]:
    """Write two runs, and return target and golden."""
    if kind == "demo":
        unpack(home)
        return home / "target" / "step0", home / "golden" / "step0"
    if kind == "gpt2":
        return make_gpt2(home)
    if kind == "ranks":
        for rank in range(2):
            make(home / str(rank), "stat", 500)
            for side in ("npu", "bench"):
                place = home / side / "step0"
                place.mkdir(parents=True, exist_ok=True)
                (home / str(rank) / side / "step0" / "rank0").rename(place / f"rank{rank}")
    else:
        make(home, "stat", int(kind) // 5 if kind.isdecimal() else None)
    return home / "npu", home / "bench"


def make_gpt2(home: Path) -> tuple[Path, Path]:
    """Record a GPT-2 twice, once with the exact GELU in its second layer."""
    from faults.nets import gpt2, words
    from faults.record import Recording

    for side, wrong in (("npu", True), ("bench", False)):
        model = gpt2(n_layer=LAYERS)
        if wrong:
            model.transformer.h[1].mlp.act = torch.nn.GELU()
        recording = Recording(home / side, "tensor")
        recording.start(model)
        tokens = words()
        model(input_ids=tokens, labels=tokens).loss.backward()
        recording.stop()
        recording.finish()
    return home / "npu" / "step0", home / "bench" / "step0"


def compare(home: Path, kind: str, target: Path, golden: Path) -> Path:
    """Compare with and without a page in turn, print the costs, and return the page."""
    costs: dict[str, list[float]] = {"xlsx": [], "xlsx,html": []}
    for number in range(REPEATS):
        for formats, found in costs.items():
            out = home / f"out-{formats}-{number}"
            command = [*PROBE, "compare", str(target), str(golden), "-o", str(out)]
            found.append(measure([*command, "--format", formats, "-j", "1"]).cpu)
    without, with_page = (statistics.median(found) for found in costs.values())
    pages = sorted((home / f"out-xlsx,html-{REPEATS - 1}").rglob("*.html"))
    page = next((page for page in pages if "summary" in page.name), pages[0])
    (answer,) = (home / f"out-xlsx,html-{REPEATS - 1}").glob("answer_*.json")
    values = json.loads(answer.read_text("utf-8"))["coverage"]["recorded"]
    print(f"{kind}: {values:,} values, {page.stat().st_size:,} bytes; {without:.2f} CPU s without the page, "
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
    medians = {name: statistics.median(values) for name, values in found.items()}
    print("  " + "; ".join(f"{name} {value:,.0f} ms" for name, value in medians.items() if value == value))


def visit(browser: Any, page: Path) -> dict[str, float]:
    """Return the milliseconds of one visit."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    tab = context.new_page()
    session = context.new_cdp_session(tab)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-ready]", timeout=120_000)
    used = cpu(session)
    paint, usable = tab.evaluate(TIMES)
    frames = []
    for step in range(FRAMES + 1):
        before = cpu(session)
        tab.evaluate(SCROLL, step)
        frames.append(cpu(session) - before)
    context.close()
    found = {"verdict painted": paint, "table usable": usable, "CPU until then": used}
    return found | {"CPU of the longest frame": max(frames[1:])}


def cpu(session: Any) -> float:
    """Return the CPU time of the page's main thread so far, in milliseconds."""
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return 1000 * float(metrics["TaskDuration"])


if __name__ == "__main__":
    main()

"""Take the pictures of pages that the documentation shows: ``python docs/make_pictures.py [OUT]``.

The runs are those of ``probe demo``, and two ranks that are made here. It needs playwright and a chromium
(CHROMIUM, or one on the path). OUT is ``docs/images`` by default.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from probe_pytorch.demo import unpack

from probe_core.cli.main import run

OUT = Path(__file__).resolve().parent / "images"
NAMES = ("chromium", "chromium-browser", "google-chrome")
CAUSE = "Tensor.__mul__.0.forward.output.0"
LARGEST = 150_000
"""Largest number of bytes of a picture."""
SIZES = {360: (360, 740), 1280: (1280, 860), 3840: (3840, 2160)}
SCHEMES = ("light", "dark")


def main() -> None:
    out = Path(sys.argv[1]) if sys.argv[1:] else OUT
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        sys.exit("no chromium: install one, or set CHROMIUM to its path")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as there, sync_playwright() as playwright:
        demo, ranks = make_pages(Path(there))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for width in SIZES:
            for scheme in SCHEMES:
                with opened(browser, demo, width, scheme) as page:
                    take(page, out / f"page-{width}-{scheme}.png", width)
        with opened(browser, demo, 1280, "light", CAUSE) as page:
            page.evaluate("document.querySelector('#details .pictures').previousElementSibling.scrollIntoView()")
            page.evaluate("document.querySelector('#rows').scrollIntoView()")
            take(page, out / "page-row.png", 1280)
        with opened(browser, demo, 1280, "light") as page:
            page.evaluate("document.querySelector('#where').scrollIntoView()")
            take(page, out / "page-where.png", 1280)
        with opened(browser, ranks, 1280, "light") as page:
            page.evaluate("document.querySelector('#ranks').scrollIntoView()")
            take(page, out / "page-ranks.png", 1280)
        browser.close()


def make_pages(there: Path) -> tuple[Path, Path]:
    """Return the page of the demo, and the page over two ranks of three steps."""
    unpack(there)
    write_ranks(there)
    found = []
    for name, target, golden in (
        ("demo", "target/step0", "golden/step0"),
        ("ranks", "many/target", "many/golden"),
    ):
        with contextlib.chdir(there), contextlib.redirect_stdout(io.StringIO()):  # the page shows the paths
            code = run(["compare", target, golden, "-o", name, "--format", "html"])
        if code:
            sys.exit(f"the runs of {name} cannot be compared")
        pages = sorted((there / name).glob("*.html"))
        found.append(next((page for page in pages if "summary" in page.name), pages[0]))
    return found[0], found[1]


def write_ranks(there: Path) -> None:
    """Write two runs of two ranks and three steps; rank 1 goes wrong in step 1, and the sum spreads it."""
    for side in ("target", "golden"):
        for step in range(3):
            for rank in range(2):
                data: dict[str, Any] = {}
                for number in range(40):
                    is_wrong = side == "target" and (step == 2 or (step == 1 and number >= (12, 25)[1 - rank]))
                    noise = 1e-7 * ((number * 7 + rank) % 11) if side == "target" else 0.0
                    off = 0.01 * (1 + (number * (5 + rank)) % 7) if is_wrong else noise
                    data[f"Functional.linear.{number}.forward"] = call(1 + number / 40, 1 + number / 40 + off)
                    if number == 24:
                        key = "Distributed.all_reduce.0.forward"
                        data[key] = call(2.0 + off, 2.0 + off)
                directory = there / "many" / side / f"step{step}" / f"rank{rank}"
                directory.mkdir(parents=True)
                head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
                (directory / "dump.json").write_text(json.dumps({**head, "data": data}))


def call(taken: float, returned: float) -> dict[str, Any]:
    """Return the record of a call with one input and one output."""
    leaves = [
        {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [16], "Max": value, "Min": value,
         "Mean": value, "Norm": 4 * value, "requires_grad": False}
        for value in (taken, returned)
    ]  # fmt: skip
    return {"input_args": leaves[:1], "input_kwargs": {}, "output": leaves[1:]}


@contextlib.contextmanager
def opened(browser: Any, path: Path, width: int, scheme: str, row: str = "") -> Iterator[Any]:
    """Yield a page in a window of a width."""
    size = dict(zip(("width", "height"), SIZES[width]))
    context = browser.new_context(viewport=size, color_scheme=scheme, offline=True, reduced_motion="reduce")
    page = context.new_page()
    page.goto(path.as_uri() + (f"#{row}" if row else ""))
    page.wait_for_selector("html[data-ready]", timeout=60_000)
    page.wait_for_timeout(300)
    yield page
    context.close()


def take(page: Any, path: Path, width: int) -> None:
    """Write a picture of the window with 256 colours; of half its size if the window is wide."""
    from PIL import Image

    raw = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    if width > 2000:
        raw = raw.resize((raw.width // 2, raw.height // 2), Image.Resampling.LANCZOS)
    raw.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.name}: {size:,} bytes")
    if size > LARGEST:
        sys.exit(f"{path} is larger than {LARGEST:,} bytes")


if __name__ == "__main__":
    main()

"""Write the pictures of the pages of pre-checks and of merged ranks: ``python docs/make_check_pictures.py``.

It needs playwright and chromium, as the tests of the pages do. The results are made up.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from probe_core.cli.main import run

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "tests"))

from support.browsers import NAMES  # noqa: E402
from support.runs.checked_files import details_of, write_check  # noqa: E402
from support.runs.merged import row, write_rank  # noqa: E402

RANKS = 16


def checks(home: Path) -> Path:
    """Write the page of two devices, one of which computes softmax wrongly."""
    npu, gpu = (str(details_of(write_check(home / side, wrong=side == "npu"))) for side in ("npu", "gpu"))
    run(["api-precision-compare", "--npu", npu, "--gpu", gpu, "-o", str(home / "out"), "--page"])
    return next((home / "out").glob("*.html"))


def ranks(home: Path) -> Path:
    """Write the page of sixteen ranks, of which rank 5 is off in one call."""
    drawn = random.Random(1)
    names = [f"Distributed.all_reduce.{call}.forward.{side}.0" for call in range(9) for side in ("input", "output")]
    sizes = {name: 10 ** drawn.uniform(-6, -3) for name in names}
    home.mkdir()
    for rank in range(RANKS):
        errors = {
            name: size * (1 + 0.2 * drawn.random() * ("input" in name)) * (400 if rank == 5 and ".7." in name else 1)
            for name, size in sizes.items()
        }
        write_rank(home, rank, [row(name, 1 - error**2, error) for name, error in errors.items()], "csv")
    (home / "merge.yaml").write_text("api: [Distributed]\ncompare_index: [MaxAbsErr]\n")
    run(
        [
            "merge-result",
            "-i",
            str(home),
            "-o",
            str(home / "out"),
            "--config",
            str(home / "merge.yaml"),
            "--page",
        ]
    )
    return next((home / "out").glob("*.html"))


def main() -> None:
    """Write both pictures."""
    chromium = next(filter(None, map(shutil.which, NAMES)))
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home, sync_playwright() as playwright:
        os.chdir(home)  # the paths on the pages are those that the commands were given
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        pages = {
            "page-checks": (checks(Path()), "#verdict"),
            "page-merged": (ranks(Path("ranks")), "#charts"),
        }
        for name, (path, part) in pages.items():
            page = browser.new_page(viewport={"width": 1100, "height": 1000}, reduced_motion="reduce")
            page.goto(path.resolve().as_uri())
            page.wait_for_selector("html[data-ready]")
            page.eval_on_selector(part, "(element) => element.scrollIntoView()")
            page.screenshot(path=DOCS / "images" / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()

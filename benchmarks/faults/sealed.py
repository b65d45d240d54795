"""A test of readers: faults drawn at random, whose pages are read before anybody knows which they are.

    python -m faults.sealed draw DIRECTORY             # draw, record, compare, and take pictures of the pages
    python -m faults.sealed score DIRECTORY ANSWERS    # open the seal and say how many answers are right

``draw`` chooses faults by the system's entropy. For each it leaves a directory, ``DIRECTORY/1`` and so on,
with its pages (one a step, and that over all steps) and pictures of what a reader sees; the runs are
removed. The names of the cases go into ``DIRECTORY/sealed``, which nobody opens; its SHA-256 is printed, to
be committed with the answers.

The file of answers has for each number what a ``Cause`` holds, as far as the page says it::

    {"1": {"op": "Functional.gelu.1.forward", "modules": ["Module.h.1.mlp.act"], "text": "exact GELU"}}

It runs from this directory's parent, with the requirements of the benchmark, playwright and a chromium.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from faults.cases import Cause
from faults.listed import CASES, chosen

COUNT = 5
SEAL = "sealed"
WIDTH, HEIGHT = 1280, 1000
PICTURES = 4
"""Number of pictures of a page, one below the other; what a reader scrolls through first."""


def draw(directory: Path, count: int) -> None:
    """Draw cases, and leave a page and pictures of each."""
    directory.mkdir(parents=True)
    names = secrets.SystemRandom().sample([case.name for case in CASES if not case.is_control], count)
    seal = base64.b64encode(json.dumps({"nonce": secrets.token_hex(16), "cases": names}).encode())
    (directory / SEAL).write_bytes(seal)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for number, name in enumerate(names, 1):
        work = directory / "work"
        here = Path(__file__).resolve().parent.parent
        subprocess.run([sys.executable, "-m", "faults.record", work, name], cwd=here, check=True, **quiet)
        (work / name / "tensor").rename(directory / "runs")  # a path that does not name the case
        shutil.rmtree(work)
        command = [sys.executable, "-m", "probe_core.cli", "compare", "runs/target", "runs/golden"]
        subprocess.run([*command, "-o", "out", "--format", "html"], cwd=directory, check=True, **quiet)
        for written in (directory / "out").rglob("*.*"):
            if written.suffix != ".html":
                written.unlink()
        (directory / "out").rename(directory / str(number))
        shutil.rmtree(directory / "runs")
        for page in sorted((directory / str(number)).rglob("*.html")):
            take(page)
        print(f"{number} of {count}: {directory / str(number)}", flush=True)
    print(f"SHA-256 of the seal: {hashlib.sha256(seal).hexdigest()}")


def take(page: Path) -> None:
    """Take pictures of the first screens of a page."""
    from playwright.sync_api import sync_playwright

    browser_path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        view.goto(page.as_uri())
        view.wait_for_selector("html[data-ready]")
        for number in range(PICTURES):
            view.evaluate(f"scrollTo(0, {number * HEIGHT})")
            view.screenshot(path=page.with_suffix(f".{number + 1}.png"))
        browser.close()


def answered(found: dict[str, Any]) -> Cause:
    """Return what a reader wrote as a cause."""
    parts = {name: str(found.get(name, "")) for name in ("op", "row", "argument", "where", "kind")}
    text, modules = str(found.get("text", "")), tuple(found.get("modules", ()))
    return Cause(**parts, statement=text, modules=modules, step=int(found.get("step", 0)))


def score(directory: Path, answers: Path) -> None:
    """Open the seal, and print for each page the answer and the fault, and how many are right."""
    seal = (directory / SEAL).read_bytes()
    given = json.loads(answers.read_text("utf-8"))
    names = json.loads(base64.b64decode(seal))["cases"]
    right = 0
    for number, name in enumerate(names, 1):
        (case,) = chosen([name])
        is_right = case.is_named_by(answered(given.get(str(number), {})))
        right += is_right
        print(f"{number} {'right' if is_right else 'WRONG'}  {name}: {case.description}")
    print(f"{right} of {len(names)} right; SHA-256 of the seal: {hashlib.sha256(seal).hexdigest()}")


def main() -> None:
    """Draw or score, as the command line says."""
    parser = argparse.ArgumentParser(prog="faults.sealed", description="Read pages without knowing the fault.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    drawing, scoring = verbs.add_parser("draw"), verbs.add_parser("score")
    drawing.add_argument("directory", type=Path, help="a directory that does not exist")
    drawing.add_argument("--count", type=int, default=COUNT, help="number of faults")
    scoring.add_argument("directory", type=Path, help="the directory of the drawing")
    scoring.add_argument("answers", type=Path, help="the file of answers")
    given = parser.parse_args()
    if given.verb == "draw":
        draw(given.directory.resolve(), given.count)
    else:
        score(given.directory, given.answers)


if __name__ == "__main__":
    main()

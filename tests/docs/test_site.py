"""The site of the pages: built strictly, complete, and without anything from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_pages import ROOT

LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=\"?(https?:|//)[^>]*>")
"""Tags that make a browser load something from another place."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as ``make.py docs`` builds it: a dead link or anchor, or a page that the menu lacks, fails."""
    for name in ("mkdocs", "material", "pymdownx"):
        pytest.importorskip(name, reason="the site needs requirements-docs.txt: python3 make.py docs")
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return directory


def test_every_page_is_there_and_nothing_else_of_the_directory(site: Path) -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert {path.stem for path in site.glob("*.html")} == pages | {"404"}
    assert not list(site.glob("*.py")) and (site / "answer.schema.json").is_file()


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        found = LOADED.search(page.read_text("utf-8"))
        assert found is None, (page.name, found)
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert not re.search(r"url\(\"?https?:|@import", styles)


def test_the_search_knows_every_page_and_works_without_a_server(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text("utf-8")
    for path in (ROOT / "docs").glob("*.md"):
        assert f'"location":"{path.stem}.html"' in index, path.name
    assert "iframe-worker" in (site / "index.html").read_text("utf-8")


def test_blocks_within_lists_are_indented_for_the_site() -> None:
    """Code hosts take two blanks or three, the site takes four; and a list or table needs a blank line before it."""
    wrong = []
    for page in (ROOT / "docs").glob("*.md"):
        before, in_list = "", False
        for line in re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL).split("\n"):
            depth = len(line) - len(line.lstrip())
            is_item = bool(re.match(r" *([-*]|\d+\.) ", line))
            starts = (is_item and not in_list) or (line.startswith("|") and not before.startswith("|"))
            if (depth % 4 and (is_item or not before)) or (starts and before):
                wrong.append(f"{page.name}: {line}")
            in_list = is_item or (in_list and (not line or depth > 0))
            before = line
    assert wrong == []


def test_what_the_check_looks_for_is_found() -> None:
    assert LOADED.search('<script src="https://example.org/x.js">') and LOADED.search("<img src=//example.org/x>")
    assert not LOADED.search('<a href="https://example.org">') and not LOADED.search('<script src="a.js">')

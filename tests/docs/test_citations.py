"""Citations of pages, links between them, the glossary, and words that no reader can know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.cases import every
from test_pages import PAGES, ROOT

CITING = (
    "*.md",
    "*.toml",
    "*.py",
    "docs/*",
    "probe_core/**/*",
    "plugins/**/*",
    "tests/**/*",
    "benchmarks/**/*",
)
"""Files in which a citation of a page, such as ``docs/tables.md#accuracy``, must be true."""
SUFFIXES = {".py", ".toml", ".yaml", ".yml", ".md", ".pyi", ".cpp", ".c", ".h"}

PLAIN = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "plugins/*/README.md")
"""Files that must be free of inside words."""
PLAIN_SOURCE: tuple[str, ...] = ()
"""The same of source code and its data: ``probe_core/**/*`` and ``plugins/**/*``, once they are."""

INSIDE = {
    "a document that is not here": r"\bspec/\w+|\(spec: pre|[Ss]ource: spec\b|\bspec \d|\bguide (?!8\.3\b|1\.0\b)\d",
    "the number of a decision": r"\b[Dd]ecisions? [A-D]\d{1,2}\b|\([ABCDP]\d{1,2}[,:;) ]|\bD\d{1,2}\b(?=[ ,;:.)])",
    "a nickname of msprobe's guide": r"\b(the|this|every|each) seed's\b|\bthe seeds? (has|says|calls|leaves|document)",
    "a nickname of msprobe": r"\b(the|their|its) peers?\b|\bpeers?'s?\b",
}
"""Words that the authors know and readers do not, as patterns."""

RULES = {
    "formats": "layout dump-json stack-json construct-json debug-json leaves names tensor-files statistics "
    "checksums error-log versions",
    "configuration": "config-json scope data-mode debugger steps-and-ranks seed-all overflow compare-file",
    "pairing": "mode rows what-must-agree exact fuzzy data-mapping alignment modules frameworks "
    "gradients-of-parameters ranks",
    "tables": "columns file-names messages preparation metrics relative-error accuracy statistics-result "
    "checksum-result exactness highlighting advisor merged digits limits",
    "first-difference": "levels search files",
    "collectives": "laws files",
    "standards": "status methods masks absolute-threshold benchmark-ratio binary-consistency ulp "
    "dual-thousandth accumulative-error releases inputs raised-precision fused-operators csv resume "
    "error-data mint",
}
"""The pages that state rules, with the anchors that code cites."""

_CITED = re.compile(r"\b(docs/[\w-]+\.md)(?:#([\w-]+))?")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def found(patterns: tuple[str, ...]) -> list[Path]:
    """The text files that patterns name, without what is installed or built."""
    files = {path for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(
        path for path in files if path.suffix in SUFFIXES and path.is_file() and not {"build", "dist"} & set(path.parts)
    )


def prose(page: Path) -> str:
    """The text of a page without its code blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors that GitHub gives to the headings of a page."""
    slugs: list[str] = []
    for title in re.findall(r"^#{1,6} +(.+?) *$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = sum(one == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", one) is not None for one in slugs)
        slugs.append(f"{slug}-{count}" if count else slug)
    return frozenset(slugs)


def citations() -> Iterator[tuple[Path, str, str]]:
    """Each citation of a page in code and prose: where, the page, the anchor."""
    for path in found(CITING):
        for page, anchor in _CITED.findall(path.read_text("utf-8", "replace")):
            yield path, page, anchor


def test_every_page_and_anchor_that_is_cited_exists() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {page}#{anchor}"
        for path, page, anchor in citations()
        if not (ROOT / page).is_file() or (anchor and anchor not in anchors(ROOT / page))
    ]
    assert wrong == []


@every("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_resolves(page: Path) -> None:
    wrong = []
    for link in _LINK.findall(prose(page)):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []


@pytest.mark.parametrize("page", RULES)
def test_the_pages_of_rules_have_their_anchors(page: str) -> None:
    assert set(RULES[page].split()) <= anchors(ROOT / "docs" / f"{page}.md")


def test_every_term_of_the_glossary_is_linked_from_a_page() -> None:
    glossary = ROOT / "docs" / "glossary.md"
    linked = {
        link.partition("#")[2]
        for page in PAGES
        if page != glossary
        for link in _LINK.findall(prose(page))
        if link.partition("#")[0].endswith("glossary.md")
    }
    assert sorted(anchors(glossary) - linked - {"glossary"}) == []


def test_the_terms_of_the_glossary_are_in_order_and_short() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    terms = re.findall(r"^## (.+)\n((?:(?!#).*\n?)*)", text, re.MULTILINE)
    titles = [title.lower() for title, _ in terms]
    assert titles == sorted(titles) and len(titles) == len(set(titles))
    assert [title for title, told in terms if not 1 <= len(told.strip().splitlines()) <= 2] == []


@pytest.mark.parametrize("what", INSIDE)
def test_no_page_speaks_in_inside_words(what: str) -> None:
    pattern = re.compile(INSIDE[what], re.IGNORECASE if "nickname" in what else 0)
    said = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in found((*PLAIN, *PLAIN_SOURCE))
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert said == []


def test_every_page_is_listed_in_the_contents() -> None:
    listed = set(_LINK.findall((ROOT / "docs" / "index.md").read_text("utf-8")))
    assert {page.name for page in ROOT.glob("docs/*.md")} - {"index.md"} <= listed

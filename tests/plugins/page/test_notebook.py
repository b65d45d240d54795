"""The head of a comparison in a notebook, held against the head of its page."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from probe_page.head import Head, create_head
from probe_page.language import load_words
from probe_pytorch.demo import unpack
from support.pages import Page

import probe_core


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> probe_core.Comparison:
    directory = tmp_path_factory.mktemp("demo")
    unpack(directory)
    return probe_core.compare(directory / "target" / "step0", directory / "golden" / "step0")


def text_of(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", " ", html))


def test_it_says_what_the_head_of_the_page_says(comparison: probe_core.Comparison, tmp_path: Path) -> None:
    shown = " ".join(text_of(comparison._repr_html_()).split())
    (path,) = comparison.write("html", tmp_path / "page.html")
    page = " ".join(text_of(Page(path).source.partition("<script")[0]).split())
    head: Head = create_head(comparison.reports[0])
    answer = head.answer
    assert answer is not None and head.causes
    texts = [answer.outcome.value, head.rest, f"{answer.coverage.compared:,} of"]
    for one in head.causes:
        assert one.frame is not None and one.frame.source and one.bars
        texts += [one.cause.row or one.cause.op, one.cause.reason.detail, one.frame.source, one.frame.file]
        texts += [
            one.cause.modules[0],
            *(text for bar in one.bars for text in (load_words()[bar.key]["en"], bar.value)),
        ]
    texts += answer.next
    for text in texts:
        assert " ".join(text.split()) in shown and " ".join(text.split()) in page, text


def test_its_verdict_comes_first(comparison: probe_core.Comparison) -> None:
    assert comparison.answer is not None
    assert comparison._repr_html_().startswith(f"<p>{comparison.answer.outcome.value}: ")

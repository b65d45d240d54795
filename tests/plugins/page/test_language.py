"""The language of the page, as a parameter of its format."""

from __future__ import annotations

from pathlib import Path

import pytest
from probe_page.language import set_page_language

from probe_core.errors import UserError
from probe_core.model.plan import Plan


def set_chinese(*formats: str) -> tuple[str, ...]:
    plan = Plan(Path("t"), Path("g"), Path("o"), "20260101000000", formats=formats, options={})
    return set_page_language(plan, {"lang": "zh"}, frozenset()).formats


@pytest.mark.parametrize(
    ("format_name", "expected"),
    [
        ("html", "html:lang=zh"),
        ("html:lang=en", "html:lang=zh"),
        ("html:lang=zh", "html:lang=zh"),
        ("html:rows=5:lang=en", "html:rows=5:lang=zh"),
    ],
)
def test_the_language_replaces_that_of_the_format(format_name: str, expected: str) -> None:
    assert set_chinese("csv", format_name) == ("csv", expected)


def test_a_language_without_a_page_is_refused() -> None:
    with pytest.raises(UserError, match="no page is written"):
        set_chinese("csv")

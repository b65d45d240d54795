"""Entries of ``list``: texts, and regular expressions."""

from __future__ import annotations

import pytest
from probe_recording.settings.name_selector import NameSelector
from support.cases import every

LINEAR, RELU = "Functional.linear.0.forward", "Functional.relu.12.backward"


@every(
    "entries, selected",
    [((), []), (("relu",), [RELU]), (("name-regex(relu|linear)",), [LINEAR, RELU]),
     ((r"name-regex(^Functional\.\w+\.\d\.)",), [LINEAR]), (("name-regex(^relu)",), []),
     (("linear", "name-regex(backward$)"), [LINEAR, RELU]), (("name-regex((linear))",), [LINEAR]),
     (("name-regex(relu",), []), (("name-regex()",), [LINEAR, RELU])],
)  # fmt: skip
def test_selects_texts_and_expressions(entries: tuple[str, ...], selected: list[str]) -> None:
    selector = NameSelector(entries)
    assert [name for name in (LINEAR, RELU) if selector.is_selected(name)] == selected


@every("expression", ["(", "*", "[a", "(?P<a>x)(?P<a>y)", "a{99999999999}"])
def test_an_invalid_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="is not a valid regular expression"):
        NameSelector((f"name-regex({expression})",))

"""The page about the structure of the code."""

from __future__ import annotations

import sys

from support import ROOT

sys.path.append(str(ROOT / "docs"))
from make_layers import PAGE, update


def test_layers_on_the_page_are_those_that_import_linter_checks() -> None:
    text = PAGE.read_text("utf-8")
    assert update(text) == text, "run: python docs/make_layers.py"

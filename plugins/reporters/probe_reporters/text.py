"""Text as Excel can hold it."""

from __future__ import annotations

import re

from probe_core.spreadsheet_text import neutralise

LARGEST_TEXT = 32_767
"""Characters that Excel takes in one cell."""

_NOT_IN_XML = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")


def excel_text(text: str) -> str:
    """``neutralise(text)`` as Excel can hold it: shortened, with what XML cannot hold as ``_xHHHH_``."""
    text = neutralise(text)
    if len(text) > LARGEST_TEXT:
        text = text[: LARGEST_TEXT - 1] + "…"
    return _NOT_IN_XML.sub(lambda found: f"_x{ord(found[0]):04X}_", text)

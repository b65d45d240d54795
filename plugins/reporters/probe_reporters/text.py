"""Limits of Excel, and text in a form that it can store."""

from __future__ import annotations

import re

from probe_reporters.spreadsheet_text import neutralise

MAX_CELL_LENGTH = 32_767
"""Largest number of characters in a cell of Excel."""
MAX_SHEET_ROWS = 1_048_500
"""Largest number of rows of one sheet, without its header; a longer table is split and not highlighted
(docs/tables.md#limits)."""

_NOT_IN_XML = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")


def format_excel_text(text: str) -> str:
    """Return ``neutralise(text)``, shortened, and with ``_xHHHH_`` for characters that XML cannot hold."""
    text = neutralise(text)
    if len(text) > MAX_CELL_LENGTH:
        text = text[: MAX_CELL_LENGTH - 1] + "…"
    return _NOT_IN_XML.sub(lambda match: f"_x{ord(match[0]):04X}_", text)

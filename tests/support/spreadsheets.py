"""Cells of workbooks as a spreadsheet shows them."""

from __future__ import annotations

from typing import Any


def displayed(cell: Any) -> Any:
    """The value of a cell; a number in percent as the text that csv has."""
    is_percent = isinstance(cell.value, (int, float)) and "%" in cell.number_format
    return f"{float(cell.value) * 100}%" if is_percent else cell.value

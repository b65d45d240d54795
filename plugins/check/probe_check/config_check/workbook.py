"""The workbook ``result.xlsx`` (docs/config-check.md#files)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from probe_reporters.api import neutralise

from probe_check.config_check.comparison import ConfigComparison
from probe_check.config_check.items import Cell
from probe_core.files.atomic import write_atomically

WORKBOOK_FILE = "result.xlsx"
SUMMARY_SHEET = "summary"
SUMMARY_COLUMNS = ("filename", "pass_check")
MAX_SHEET_ROWS = 1_048_499
"""Largest number of rows of a sheet; longer tables continue in further sheets."""
MAX_CELL_LENGTH = 32_000
"""Largest number of characters of a cell; the limit of spreadsheets is slightly larger."""


def write_workbook(path: Path, comparison: ConfigComparison) -> None:
    """Write the summary and the table of each item."""
    import xlsxwriter

    options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with write_atomically(path, "The result") as temporary, xlsxwriter.Workbook(temporary, options) as book:
        rows = [(result.item.value, result.level.value) for result in comparison.results]
        _add_sheet(book, SUMMARY_SHEET, SUMMARY_COLUMNS, rows)
        for result in comparison.results:
            parts = -(-len(result.rows) // MAX_SHEET_ROWS) or 1
            length = -(-len(result.rows) // parts)
            for part in range(parts):
                name = result.item.value if parts == 1 else f"{result.item.value}_part_{part}"
                _add_sheet(book, name, result.columns, result.rows[part * length : (part + 1) * length])


def _add_sheet(book: Any, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    sheet = book.add_worksheet(name)
    sheet.freeze_panes(1, 0)
    bold = book.add_format({"bold": True})
    for number, title in enumerate(columns):
        sheet.write_string(0, number, title, bold)
    for row_number, row in enumerate(rows, 1):
        for number, value in enumerate(row):
            _write_cell(sheet, row_number, number, value)


def _write_cell(sheet: Any, row: int, column: int, value: Cell) -> None:
    """Write a cell.

    A number that a sheet cannot hold exactly is written as a text; None and an empty text leave the cell empty.
    """
    if value is None or value == "":
        return
    if isinstance(value, bool):
        sheet.write_boolean(row, column, value)
    elif isinstance(value, str):
        sheet.write_string(row, column, neutralise(value[:MAX_CELL_LENGTH]))
    elif abs(value) <= 2**53:  # False for nan
        sheet.write_number(row, column, value)
    else:
        sheet.write_string(row, column, str(value))

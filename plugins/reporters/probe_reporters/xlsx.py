"""Excel workbooks, written row by row in constant memory."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import xlsxwriter
from xlsxwriter.exceptions import XlsxFileError

from probe_core.model import Cell, Colour
from probe_core.table import LARGEST_SHEET
from probe_reporters.text import neutralise

LARGEST_TEXT = 32_767
"""Characters that Excel takes in one cell."""

FILLS = {Colour.RED: "#FF0000", Colour.YELLOW: "#FFFF00"}
WIDE = {"NPU Name": 42, "Bench Name": 42, "Err_message": 60, "NPU_Stack_Info": 40, "Data_name": 40}
EPOCH = datetime(2000, 1, 1)


class XlsxReporter:
    """Writes tables as workbooks, on several sheets of equal length where one does not hold them."""

    def open(self, path: Path, headers: Sequence[str], row_count: int) -> XlsxWriter:
        """Begin a table of ``row_count`` rows at ``path``."""
        return XlsxWriter(path, headers, _sheet_length(row_count), row_count > LARGEST_SHEET)

    def line(self, row: int, row_count: int) -> str:
        """The number that Excel shows beside the row; the header is row 1."""
        length = _sheet_length(row_count)
        if row_count <= LARGEST_SHEET:
            return str(row + 2)
        return f"part_{row // length}!{row % length + 2}"


def _sheet_length(row_count: int) -> int:
    sheets = max(1, -(-row_count // LARGEST_SHEET))
    return max(1, -(-row_count // sheets))


class XlsxWriter:
    """One workbook being written."""

    def __init__(self, path: Path, headers: Sequence[str], length: int, several: bool) -> None:
        path.open("wb").close()  # a directory that takes no files says so now
        self._scratch = tempfile.TemporaryDirectory(prefix=".probe-", dir=path.parent)
        self._book = xlsxwriter.Workbook(
            str(path),
            {
                "constant_memory": True,
                "tmpdir": self._scratch.name,
                "strings_to_formulas": False,
                "strings_to_urls": False,
                "strings_to_numbers": False,
                "nan_inf_to_errors": False,
            },
        )
        self._book.set_properties({"created": EPOCH})
        if several:
            self._book.use_zip64()
        self._head = self._book.add_format({"bold": True})
        self._formats: dict[Colour | None, Any] = {None: None}
        for colour, fill in FILLS.items():
            self._formats[colour] = self._book.add_format({"bg_color": fill})
        self._headers = headers
        self._length = length
        self._several = several
        self._row = 0
        self._sheet = self._add_sheet()

    def _add_sheet(self) -> Any:
        number = len(self._book.worksheets())
        sheet = self._book.add_worksheet(f"part_{number}" if self._several else "Sheet1")
        sheet.freeze_panes(1, 1)
        sheet.autofilter(0, 0, self._length, len(self._headers) - 1)
        for column, header in enumerate(self._headers):
            sheet.set_column(column, column, WIDE.get(header, max(12, len(header) + 2)))
        for column, header in enumerate(self._headers):
            sheet.write_string(0, column, neutralise(header), self._head)
        return sheet

    def write(self, cells: Sequence[Cell], colour: Colour | None) -> None:
        """Append one row, filled with its colour."""
        if self._row == self._length:
            self._sheet = self._add_sheet()
            self._row = 0
        self._row += 1
        style = self._formats[colour]
        for column, cell in enumerate(cells):
            if isinstance(cell, bool):
                self._sheet.write_boolean(self._row, column, cell, style)
            elif isinstance(cell, str):
                text = neutralise(cell)
                if len(text) > LARGEST_TEXT:
                    text = text[: LARGEST_TEXT - 1] + "…"
                if text:
                    self._sheet.write_string(self._row, column, text, style)
                elif style is not None:
                    self._sheet.write_blank(self._row, column, None, style)
            elif cell is not None:
                self._sheet.write_number(self._row, column, cell, style)

    def close(self) -> None:
        """Complete the workbook."""
        try:
            self._book.close()
        except XlsxFileError as error:
            cause = error.args[0] if error.args else error
            raise cause if isinstance(cause, OSError) else OSError(str(cause)) from None
        self._scratch.cleanup()

    def abandon(self) -> None:
        """Let go of the rows written so far."""
        self._book.fileclosed = True
        for sheet in self._book.worksheets():
            with suppress(OSError):
                sheet.row_data_fh.close()
        self._scratch.cleanup()

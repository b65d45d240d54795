"""Excel workbooks, written row by row in constant memory.

The rows are inserted into the empty sheets of a template (``xlsx_template.py``), and written directly to the
compressed file.
"""

from __future__ import annotations

import errno
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import IO

import numpy as np

from probe_core.model import Cell, Colour, Percent
from probe_core.model.answers import Answer
from probe_core.model.batches import RowBatch
from probe_reporters.answer_sheet import AnswerLine, RowIndex, iterate_lines
from probe_reporters.lines import format_sheet_rows, sheet_row, styled_row
from probe_reporters.table import PERCENT_CODE, CellColumn
from probe_reporters.text import MAX_SHEET_ROWS, format_excel_text
from probe_reporters.xlsx_template import FILL_COLORS, WorkbookTemplate, create_template

ENTRY_TIME = (1980, 1, 1, 0, 0, 0)
"""Fixed time of the files in the archive, so that equal tables give equal files."""
MAX_CELLS_WITHOUT_ZIP64 = 10_000_000
"""Number of cells above which a sheet may exceed 2 GiB before compression. Such a sheet needs the zip64 format, for
which Excel may show a warning."""
COMPRESSION_LEVEL = 3
"""Compression level of zlib. Compared with the default of 6, files are 10 % larger and are written in less than half
the time."""


class XlsxReporter:
    """Reporter for workbooks; a table that is too long gets several sheets of equal length."""

    def open(self, path: Path, headers: Sequence[str], row_count: int) -> XlsxTableWriter:
        """Begin a table of ``row_count`` rows at ``path``."""
        return XlsxTableWriter(path, headers, row_count)

    def line(self, row: int, row_count: int) -> str:
        """Return the number that Excel displays next to a row; the header is row 1."""
        length = _compute_sheet_length(row_count)
        if row_count <= MAX_SHEET_ROWS:
            return str(row + 2)
        return f"part_{row // length}!{row % length + 2}"


def _compute_sheet_count(row_count: int) -> int:
    return max(1, -(-row_count // MAX_SHEET_ROWS))


def _compute_sheet_length(row_count: int) -> int:
    return max(1, -(-row_count // _compute_sheet_count(row_count)))


class XlsxTableWriter:
    """A workbook that is being written."""

    def __init__(self, path: Path, headers: Sequence[str], row_count: int) -> None:
        self._headers = headers
        self._sheet_row_count = _compute_sheet_length(row_count)
        self._is_large = row_count * len(headers) > MAX_CELLS_WITHOUT_ZIP64
        self._sheet_count = _compute_sheet_count(row_count)
        self._template = create_template(headers, self._sheet_count, self._sheet_row_count)
        self._answer: Answer | None = None
        self._row_index = RowIndex(headers)
        self._file = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=COMPRESSION_LEVEL)
        self._sheets = iter(self._template.sheets.items())
        self._sheet: IO[bytes] | None = None
        self._sheet_name = ""
        self._sheet_tail = b""
        self._row = 0
        try:
            self._next_sheet()
        except BaseException:  # the caller has no writer to close
            self.abandon()
            raise

    def write(self, cells: Sequence[Cell], colour: Colour | None) -> None:
        """Append one row, filled with its colour."""
        if self._row == self._sheet_row_count:
            self._end_sheet()
            self._next_sheet()
        self._row += 1
        self._row_index.add(cells, colour)
        assert self._sheet is not None
        if self._template.percent_columns:
            row = styled_row(
                replace_percentages(cells), self._row + 1, self._template.column_styles[colour], format_excel_text
            )
        else:
            row = sheet_row(cells, self._row + 1, self._template.styles[colour], format_excel_text)
        self._sheet.write(row)

    def write_batch(self, columns: Sequence[CellColumn], batch: RowBatch) -> None:
        """Append the rows of a batch, given as columns, filled with their colours."""
        colors = [mark.colour if (mark := batch.marks.get(line)) else None for line in range(len(batch))]
        self._row_index.add_batch(columns, colors)
        template, fill_colors = self._template, [None, *FILL_COLORS]
        has_percent_columns = bool(template.percent_columns)
        columns = [_convert_column(column, has_percent_columns=has_percent_columns) for column in columns]
        styles: list[Sequence[int]] = [template.column_styles[colour] for colour in fill_colors]
        codes = bytes(map(fill_colors.index, colors))
        start = 0
        while start < len(batch):
            if self._row == self._sheet_row_count:
                self._end_sheet()
                self._next_sheet()
            rows = range(start, min(len(batch), start + self._sheet_row_count - self._row))
            assert self._sheet is not None
            self._sheet.write(format_sheet_rows(columns, rows, self._row + 2, styles, codes, format_excel_text))
            self._row += len(rows)
            start = rows.stop

    def answer(self, answer: Answer) -> None:
        """Store the answer. ``close`` writes it as the last sheet, which is displayed when the workbook is opened."""
        self._answer = answer

    def close(self) -> None:
        """Complete the workbook."""
        template = self._template
        lines = list(iterate_lines(self._answer, self._row_index)) if self._answer is not None else []
        if lines:
            template = create_template(self._headers, self._sheet_count, self._sheet_row_count, lines)
            self._sheet_tail = template.sheets[self._sheet_name][1]
        self._finish_table_sheets()
        if lines:
            self._write_answer_sheet(template, lines)
        for name, content in template.parts.items():
            self._file.writestr(create_archive_entry(name), content)
        self._file.close()

    def _finish_table_sheets(self) -> None:
        """End the current sheet, and write the sheets that have no rows because of an interruption."""
        self._end_sheet()
        for _ in range(len(self._template.sheets)):
            with suppress(StopIteration):
                self._next_sheet()
                self._end_sheet()

    def _write_answer_sheet(self, template: WorkbookTemplate, lines: Sequence[AnswerLine]) -> None:
        """Write the last sheet of a template, with the lines of the answer."""
        name, (head, tail) = list(template.sheets.items())[-1]
        rows = [
            sheet_row((line.heading, line.text), number, template.line_styles[line.kind], format_excel_text).replace(
                b'">', b'" ht="%d" customHeight="1">' % line.height, 1
            )
            for number, line in enumerate(lines, 1)
        ]
        self._file.writestr(create_archive_entry(name), b"".join([head, b"<sheetData>", *rows, b"</sheetData>", tail]))

    def abandon(self) -> None:
        """Close the file without completing it."""
        for file in (self._sheet, self._file):
            with suppress(OSError, ValueError):  # the end of the file cannot be written to a full disk
                if file is not None:
                    file.close()

    def _next_sheet(self) -> None:
        self._sheet_name, (head, self._sheet_tail) = next(self._sheets)
        self._sheet = self._file.open(create_archive_entry(self._sheet_name), "w", force_zip64=self._is_large)
        self._sheet.write(head + b"<sheetData>")
        self._sheet.write(sheet_row(self._headers, 1, self._template.header_style, format_excel_text))
        self._row = 0

    def _end_sheet(self) -> None:
        if self._sheet is not None:
            self._sheet.write(b"</sheetData>" + self._sheet_tail)
            try:
                self._sheet.close()
            except RuntimeError as error:  # raised by zipfile above 2 GiB without zip64
                raise OSError(errno.EFBIG, "a sheet takes more than 2 GiB; write csv instead") from error
            self._sheet = None


def _convert_column(column: CellColumn, *, has_percent_columns: bool) -> CellColumn:
    """Return a column in which ratios replace percentages.

    If no column of the table has the percentage format, the percentages are returned as texts.
    """
    if not has_percent_columns:
        if not (column.codes == PERCENT_CODE).any():
            return column
        return CellColumn(np.arange(len(column.codes)), column.get_cells())
    has_percentage = any(type(text) is Percent for text in column.texts)
    return replace(column, texts=replace_percentages(column.texts)) if has_percentage else column


def replace_percentages(cells: Sequence[Cell]) -> list[Cell]:
    """Return cells with the ratios of finite percentages in place of their texts."""
    return [cell.ratio if type(cell) is Percent and isfinite(cell.ratio) else cell for cell in cells]


def create_archive_entry(name: str) -> zipfile.ZipInfo:
    """Return the entry of a compressed file in the archive, with a fixed time."""
    entry = zipfile.ZipInfo(name, ENTRY_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry._compresslevel = COMPRESSION_LEVEL  # type: ignore[attr-defined]  # a ZipInfo ignores the level of its ZipFile
    return entry

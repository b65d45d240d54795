"""Excel workbooks, written row by row in constant memory.

XlsxWriter makes a workbook with styles, widths, filters and empty sheets. The rows are written into these
sheets as they come, straight into the compressed file.
"""

from __future__ import annotations

import errno
import io
import re
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import IO, Any

import numpy as np
import xlsxwriter
from xlsxwriter.utility import xl_rowcol_to_cell

from probe_core.model import Cell, Colour, Percent
from probe_core.model.answers import Answer
from probe_core.model.batches import RowBatch
from probe_core.model.rows import MAX_SHEET_ROWS
from probe_reporters.answer_sheet import (
    ANSWER_COLUMN_WIDTHS,
    ANSWER_SHEET_NAME,
    LINE_FORMATS,
    SUSPECT_FORMAT,
    AnswerLine,
    RowIndex,
    yield_lines,
)
from probe_reporters.lines import sheet_row, sheet_rows, styled_row
from probe_reporters.results import find_percent_columns
from probe_reporters.table import PERCENT_CODE as PERCENTAGE
from probe_reporters.table import CellColumn
from probe_reporters.text import format_excel_text

FILL_COLOURS = {Colour.RED: "#FF0000", Colour.YELLOW: "#FFFF00"}
TABLE_COLUMN_WIDTHS = {
    "NPU Name": 42, "Bench Name": 42, "Err_message": 60, "NPU_Stack_Info": 40, "Data_name": 40,
    "First suspect": 42, "Why": 60, "Module": 42, "Line of code": 60, "Error": 60,
}  # fmt: skip
"""Widths of columns of long texts, in characters; others are as wide as their headers."""
PERCENT_FORMAT = "0.00%"
"""Number format of cells of percentages, which hold ratios."""
SMALL_PERCENT_FORMATS = {"0.0########%": "AND(ISNUMBER({0}),{0}<>0,ABS({0})<0.0001)"}
"""Number format of percentages that ``PERCENT`` would show as 0, and the formula as in ``FEW_DIGITS``."""
CREATION_TIME = datetime(2000, 1, 1)
ENTRY_TIME = (1980, 1, 1, 0, 0, 0)
MAX_CELLS_WITHOUT_ZIP64 = 10_000_000
"""Number of cells from which on a sheet may exceed 2 GiB before compression. It then needs the zip64 format,
of which Excel may warn."""
NUMBER_FORMATS = {
    "0.0####": "AND(ISNUMBER({0}),{0}<>INT({0}),ABS({0})>=0.001,ABS({0})<10000,ABS(ABS({0})-1)>0.0001)",
    "0.00E+00": "AND(ISNUMBER({0}),{0}<>0,OR(ABS({0})<0.001,ABS({0})>=10000000))",
}
"""Number formats of the table's cells, and the formula in which ``{0}`` is the cell that each is for.

Spreadsheets apply them as they show a cell; the cells keep all digits and no format of their own.
"""
COMPRESSION_LEVEL = 3
"""Compression level; files are a tenth larger than at the default of 6, in less than half the time."""

_SHEET_DATA = re.compile(rb"<sheetData>.*</sheetData>", re.DOTALL)
_SELECTED_TAB = b' tabSelected="1"'
_LINE_STYLE = re.compile(rb'<c r="A\d+" s="(\d+)"')
_STYLE = re.compile(rb'<c r="[A-Z]+1" s="(\d+)"')


class XlsxReporter:
    """Reporter for workbooks; a table that is too long gets several sheets of equal length."""

    def open(self, path: Path, headers: Sequence[str], row_count: int) -> XlsxWriter:
        """Begin a table of ``row_count`` rows at ``path``."""
        return XlsxWriter(path, headers, row_count)

    def line(self, row: int, row_count: int) -> str:
        """Return the number that Excel shows beside a row; the header is row 1."""
        length = _compute_sheet_length(row_count)
        if row_count <= MAX_SHEET_ROWS:
            return str(row + 2)
        return f"part_{row // length}!{row % length + 2}"


def _compute_sheet_count(row_count: int) -> int:
    return max(1, -(-row_count // MAX_SHEET_ROWS))


def _compute_sheet_length(row_count: int) -> int:
    return max(1, -(-row_count // _compute_sheet_count(row_count)))


class XlsxWriter:
    """A workbook that is being written."""

    def __init__(self, path: Path, headers: Sequence[str], row_count: int) -> None:
        self._headers = headers
        self._length = _compute_sheet_length(row_count)
        self._is_large = row_count * len(headers) > MAX_CELLS_WITHOUT_ZIP64
        self._count = _compute_sheet_count(row_count)
        self._frame = _create_empty_workbook(headers, self._count, self._length)
        self._answer: Answer | None = None
        self._places = RowIndex(headers)
        self._file = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=COMPRESSION_LEVEL)
        self._sheets = iter(self._frame.sheets.items())
        self._sheet: IO[bytes] | None = None
        self._name, self._tail = "", b""
        self._row = 0
        try:
            self._next_sheet()
        except BaseException:  # the caller has no writer to close
            self.abandon()
            raise

    def write(self, cells: Sequence[Cell], colour: Colour | None) -> None:
        """Append one row, filled with its colour."""
        if self._row == self._length:
            self._end_sheet()
            self._next_sheet()
        self._row += 1
        self._places.add(cells, colour)
        assert self._sheet is not None
        if self._frame.percent:
            row = styled_row(
                replace_percentages(cells), self._row + 1, self._frame.column_styles[colour], format_excel_text
            )
        else:
            row = sheet_row(cells, self._row + 1, self._frame.styles[colour], format_excel_text)
        self._sheet.write(row)

    def write_batch(self, columns: Sequence[CellColumn], batch: RowBatch) -> None:
        """Append the rows of a batch, given as columns, filled with their colours."""
        colours = [mark.colour if (mark := batch.marks.get(line)) else None for line in range(len(batch))]
        self._places.add_batch(columns, colours)
        frame, fill_colours = self._frame, [None, *FILL_COLOURS]
        columns = [_convert_column(column, in_percent=bool(frame.percent)) for column in columns]
        styles: list[Sequence[int]] = [frame.column_styles[colour] for colour in fill_colours]
        codes = bytes(map(fill_colours.index, colours))
        start = 0
        while start < len(batch):
            if self._row == self._length:
                self._end_sheet()
                self._next_sheet()
            rows = range(start, min(len(batch), start + self._length - self._row))
            assert self._sheet is not None
            self._sheet.write(sheet_rows(columns, rows, self._row + 2, styles, codes, format_excel_text))
            self._row += len(rows)
            start = rows.stop

    def answer(self, answer: Answer) -> None:
        """Take in the answer, which becomes the last sheet and is shown when the workbook is opened."""
        self._answer = answer

    def close(self) -> None:
        """Complete the workbook."""
        frame = self._frame
        lines = list(yield_lines(self._answer, self._places)) if self._answer is not None else []
        if lines:
            frame = _create_empty_workbook(self._headers, self._count, self._length, lines)
            self._tail = frame.sheets[self._name][1]
        self._end_sheet()
        for _ in range(len(self._frame.sheets)):  # sheets without rows, after an interruption
            with suppress(StopIteration):
                self._next_sheet()
                self._end_sheet()
        if lines:
            name, (head, tail) = list(frame.sheets.items())[-1]
            rows = [
                sheet_row((line.heading, line.text), number, frame.looks[line.kind], format_excel_text).replace(
                    b'">', b'" ht="%d" customHeight="1">' % line.height, 1
                )
                for number, line in enumerate(lines, 1)
            ]
            self._file.writestr(_create_entry(name), b"".join([head, b"<sheetData>", *rows, b"</sheetData>", tail]))
        for name, content in frame.parts.items():
            self._file.writestr(_create_entry(name), content)
        self._file.close()

    def abandon(self) -> None:
        """Close the file without completing it."""
        for file in (self._sheet, self._file):
            with suppress(OSError, ValueError):  # the end of the file cannot be written to a full disk
                if file is not None:
                    file.close()

    def _next_sheet(self) -> None:
        self._name, (head, self._tail) = next(self._sheets)
        self._sheet = self._file.open(_create_entry(self._name), "w", force_zip64=self._is_large)
        self._sheet.write(head + b"<sheetData>")
        self._sheet.write(sheet_row(self._headers, 1, self._frame.head, format_excel_text))
        self._row = 0

    def _end_sheet(self) -> None:
        if self._sheet is not None:
            self._sheet.write(b"</sheetData>" + self._tail)
            try:
                self._sheet.close()
            except RuntimeError as error:  # raised by zipfile above 2 GiB without zip64
                raise OSError(errno.EFBIG, "a sheet takes more than 2 GiB; write csv instead") from error
            self._sheet = None


def _convert_column(column: CellColumn, *, in_percent: bool) -> CellColumn:
    """Return a column with ratios in place of percentages; with texts if no column has their format."""
    if not in_percent:
        if not (column.codes == PERCENTAGE).any():
            return column
        return CellColumn(np.arange(len(column.codes)), column.get_cells())
    has_percentage = any(type(text) is Percent for text in column.texts)
    return replace(column, texts=replace_percentages(column.texts)) if has_percentage else column


def replace_percentages(cells: Sequence[Cell]) -> list[Cell]:
    """Return cells with the ratios of finite percentages in place of their texts."""
    return [cell.ratio if type(cell) is Percent and isfinite(cell.ratio) else cell for cell in cells]


def _create_entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, ENTRY_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry._compresslevel = COMPRESSION_LEVEL  # type: ignore[attr-defined]  # an entry ignores that of its archive
    return entry


@dataclass(frozen=True, slots=True)
class _EmptyWorkbook:
    """A workbook without rows: its parts, each sheet before and after its rows, and its styles."""

    parts: dict[str, bytes]
    sheets: dict[str, tuple[bytes, bytes]]
    styles: dict[Colour | None, int]
    column_styles: dict[Colour | None, tuple[int, ...]]
    percent: frozenset[int]
    head: int
    looks: dict[str, int]


def _create_empty_workbook(
    headers: Sequence[str], count: int, length: int, answer: Sequence[AnswerLine] = ()
) -> _EmptyWorkbook:
    """Return the parts of a workbook that XlsxWriter made with one cell of each style.

    Args:
        headers: The headers of the table.
        count: Number of sheets of the table.
        length: Number of rows of each.
        answer: The lines of the sheet of the answer, which is shown first; none without that sheet.
    """
    memory = io.BytesIO()
    book = xlsxwriter.Workbook(memory, {"in_memory": True})
    book.set_properties({"created": CREATION_TIME})
    fills: list[dict[str, str]] = [{"bg_color": fill} for fill in FILL_COLOURS.values()]
    percent = find_percent_columns(headers)
    formats = [book.add_format({"bold": True}), *map(book.add_format, fills)]
    if percent:
        formats += [book.add_format({"num_format": PERCENT_FORMAT, **fill}) for fill in ({}, *fills)]
    rules, small = (
        [(rule, book.add_format({"num_format": shown})) for shown, rule in formulas.items()]
        for formulas in (NUMBER_FORMATS, SMALL_PERCENT_FORMATS if percent else {})
    )
    last = len(headers) - 1
    titles = [f"part_{number}" for number in range(count)] if count > 1 else ["Sheet1"]
    for title in titles:
        sheet = book.add_worksheet(title)
        sheet.freeze_panes(1, 1)
        for column, header in enumerate(headers):
            sheet.set_column(column, column, TABLE_COLUMN_WIDTHS.get(header, max(12, len(header) + 2)))
        for column, style in enumerate(formats):
            sheet.write_blank(0, column, None, style)
        sheet.write_blank(length, last, None, formats[0])  # sets the extent of the sheet
        sheet.autofilter(0, 0, length, last)
        for is_percent, columns in groupby(range(min(1, last), last + 1), percent.__contains__):
            first, *_, end = (*columns,) * 2
            for rule, style in small if is_percent else rules:
                _add_rule(sheet, (1, first, max(1, length), end), rule, style)
    if answer:
        _add_answer(book, answer, length, last)
    book.close()
    parts: dict[str, bytes] = {}
    sheets: dict[str, tuple[bytes, bytes]] = {}
    styles: list[int] = []
    looks: dict[str, int] = {}
    with zipfile.ZipFile(memory) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            if name.startswith("xl/worksheets/sheet"):
                before, after = _SHEET_DATA.split(content)
                if len(sheets) < count:  # only the answer is selected; Excel would write into all that are
                    before = before.replace(_SELECTED_TAB, b"")
                else:
                    line_styles = [int(style) for style in _LINE_STYLE.findall(content)]
                    looks = {line.kind: style for line, style in zip(answer, line_styles, strict=True)}
                sheets[name] = before, after
                styles = styles or [int(style) for style in _STYLE.findall(content)]
            else:
                parts[name] = content
    colours = (None, *FILL_COLOURS)
    head, *by_colour = styles[: len(formats)]
    plain = dict(zip(colours, (0, *by_colour)))
    in_percent = dict(zip(colours, by_colour[len(FILL_COLOURS) :])) if percent else plain
    by_column = {
        colour: tuple((in_percent if place in percent else plain)[colour] for place in range(len(headers)))
        for colour in colours
    }
    return _EmptyWorkbook(parts, sheets, plain, by_column, percent, head, looks)


def _add_rule(sheet: Any, cells: tuple[int, int, int, int], rule: str, style: Any) -> None:
    """Add a format for the cells of a sheet for which a formula holds."""
    first = xl_rowcol_to_cell(cells[0], cells[1])
    sheet.conditional_format(*cells, {"type": "formula", "criteria": f"={rule.format(first)}", "format": style})


def _add_answer(book: Any, answer: Sequence[AnswerLine], length: int, last: int) -> None:
    """Add the sheet of the answer, its links, and the format of the suspects."""
    tables = list(book.worksheets())
    styles = {
        kind: book.add_format({"text_wrap": True, "valign": "top", **look}) for kind, look in LINE_FORMATS.items()
    }
    suspect = book.add_format(SUSPECT_FORMAT)
    sheet = book.add_worksheet(ANSWER_SHEET_NAME)
    for column, width in enumerate(ANSWER_COLUMN_WIDTHS):
        sheet.set_column(column, column, width)
    for number, line in enumerate(answer):
        sheet.write_blank(number, 0, None, styles[line.kind])
        sheet.write_blank(number, 1, None, styles[line.kind])  # sets the extent of the sheet
        if line.row < 0:
            continue
        table, row = tables[line.row // length], line.row % length + 1
        place = f"internal:{table.get_name()}!{xl_rowcol_to_cell(row, 0)}"
        sheet.write_url(number, 0 if line.kind == "cause" else 1, place, styles[line.kind], " ")
        if line.kind == "cause":
            _add_rule(table, (row, 0, row, last), "TRUE", suspect)
    sheet.activate()

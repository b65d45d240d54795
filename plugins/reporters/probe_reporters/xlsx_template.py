"""Templates of Excel workbooks: a workbook without rows, created by the library XlsxWriter.

The template has styles, column widths, filters, conditional formats and empty sheets.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

import xlsxwriter
from xlsxwriter.utility import xl_rowcol_to_cell

from probe_core.model import Colour
from probe_reporters.answer_sheet import (
    ANSWER_COLUMN_WIDTHS,
    ANSWER_SHEET_NAME,
    LINE_FORMATS,
    SUSPECT_FORMAT,
    AnswerLine,
)
from probe_reporters.results import find_percent_columns

FILL_COLORS = {Colour.RED: "#FF0000", Colour.YELLOW: "#FFFF00"}
TABLE_COLUMN_WIDTHS = {
    "NPU Name": 42, "Bench Name": 42, "Err_message": 60, "NPU_Stack_Info": 40, "Data_name": 40,
    "First suspect": 42, "Why": 60, "Module": 42, "Line of code": 60, "Error": 60,
}  # fmt: skip
"""Widths of the columns with long texts, in characters. Other columns are as wide as their headers."""
PERCENT_FORMAT = "0.00%"
"""Number format of percentage cells. The cells contain ratios."""
SMALL_PERCENT_FORMATS = {"0.0########%": "AND(ISNUMBER({0}),{0}<>0,ABS({0})<0.0001)"}
"""Number format of percentages that ``PERCENT_FORMAT`` would show as 0, with the formula of the cells that get it, as
in ``NUMBER_FORMATS``."""
NUMBER_FORMATS = {
    "0.0####": "AND(ISNUMBER({0}),{0}<>INT({0}),ABS({0})>=0.001,ABS({0})<10000,ABS(ABS({0})-1)>0.0001)",
    "0.00E+00": "AND(ISNUMBER({0}),{0}<>0,OR(ABS({0})<0.001,ABS({0})>=10000000))",
}
"""Number formats of the table's cells. Each has the formula of the cells to which it applies; ``{0}`` is the cell.

Spreadsheets apply these formats when they display a cell. The cell itself keeps all digits and has no number format.
"""
CREATION_TIME = datetime(2000, 1, 1)
"""Fixed time in the properties of a workbook, so that equal tables give equal files."""
SHEET_DATA = re.compile(rb"<sheetData>.*</sheetData>", re.DOTALL)
HEADER_STYLE = re.compile(rb'<c r="[A-Z]+1" s="(\d+)"')
"""The style of a cell in the first row of a sheet."""

_SELECTED_TAB = b' tabSelected="1"'
_LINE_STYLE = re.compile(rb'<c r="A\d+" s="(\d+)"')


@dataclass(frozen=True, slots=True)
class WorkbookTemplate:
    """Template of a workbook without rows.

    Attributes:
        parts: The other files of the archive.
        sheets: The bytes before and after the rows of each sheet.
        styles: The number of the style of a row by its colour.
        column_styles: The numbers of the styles of the cells of a row by its colour.
        percent_columns: The columns with the percentage format.
        header_style: The number of the style of the header.
        line_styles: The numbers of the styles of the answer's lines by their kind.
    """

    parts: dict[str, bytes]
    sheets: dict[str, tuple[bytes, bytes]]
    styles: dict[Colour | None, int]
    column_styles: dict[Colour | None, tuple[int, ...]]
    percent_columns: frozenset[int]
    header_style: int
    line_styles: dict[str, int]


def create_template(
    headers: Sequence[str], sheet_count: int, sheet_row_count: int, answer: Sequence[AnswerLine] = ()
) -> WorkbookTemplate:
    """Create a workbook with a cell of each style, and return its parts and style numbers.

    Args:
        headers: The headers of the table.
        sheet_count: Number of sheets of the table.
        sheet_row_count: Number of rows of each sheet.
        answer: The lines of the answer sheet, which is displayed first; empty for a workbook without this sheet.
    """
    memory = io.BytesIO()
    book = xlsxwriter.Workbook(memory, {"in_memory": True})
    book.set_properties({"created": CREATION_TIME})
    percent_columns = find_percent_columns(headers)
    formats = _add_cell_formats(book, has_percent_columns=bool(percent_columns))
    number_rules = _add_rule_formats(book, NUMBER_FORMATS)
    percent_rules = _add_rule_formats(book, SMALL_PERCENT_FORMATS if percent_columns else {})
    last_column = len(headers) - 1
    for title in [f"part_{number}" for number in range(sheet_count)] if sheet_count > 1 else ["Sheet1"]:
        sheet = book.add_worksheet(title)
        _fill_table_sheet(sheet, headers, sheet_row_count, formats)
        for is_percent, columns in groupby(range(min(1, last_column), last_column + 1), percent_columns.__contains__):
            group = list(columns)
            for rule, style in percent_rules if is_percent else number_rules:
                _add_rule(sheet, (1, group[0], max(1, sheet_row_count), group[-1]), rule, style)
    if answer:
        _add_answer(book, answer, sheet_row_count, last_column)
    book.close()
    parts, contents = _read_parts(memory)
    sheet_contents = list(contents.values())
    style_numbers = [int(style) for style in HEADER_STYLE.findall(sheet_contents[0])][: len(formats)]
    styles, percent_styles = _map_styles(style_numbers)
    column_styles = {
        color: tuple((percent_styles if index in percent_columns else styles)[color] for index in range(len(headers)))
        for color in styles
    }
    sheets = _split_sheets(contents, sheet_count)
    line_styles = _read_line_styles(sheet_contents[-1], answer) if answer else {}
    return WorkbookTemplate(parts, sheets, styles, column_styles, percent_columns, style_numbers[0], line_styles)


def _add_cell_formats(book: Any, *, has_percent_columns: bool) -> list[Any]:
    """Add the formats of the header and of coloured cells, and return them: first the header's, then by colour."""
    fills: list[dict[str, str]] = [{"bg_color": fill} for fill in FILL_COLORS.values()]
    formats = [book.add_format({"bold": True}), *map(book.add_format, fills)]
    if has_percent_columns:
        formats += [book.add_format({"num_format": PERCENT_FORMAT, **fill}) for fill in ({}, *fills)]
    return formats


def _add_rule_formats(book: Any, formulas: Mapping[str, str]) -> list[tuple[str, Any]]:
    """Add number formats, and return each format with its formula."""
    return [(formula, book.add_format({"num_format": number_format})) for number_format, formula in formulas.items()]


def _fill_table_sheet(sheet: Any, headers: Sequence[str], row_count: int, formats: Sequence[Any]) -> None:
    """Set widths, filters and extent of a sheet of the table, with a cell of each format in the first row."""
    last_column = len(headers) - 1
    sheet.freeze_panes(1, 1)
    for column, header in enumerate(headers):
        sheet.set_column(column, column, TABLE_COLUMN_WIDTHS.get(header, max(12, len(header) + 2)))
    for column, style in enumerate(formats):
        sheet.write_blank(0, column, None, style)
    sheet.write_blank(row_count, last_column, None, formats[0])  # sets the extent of the sheet
    sheet.autofilter(0, 0, row_count, last_column)


def _read_parts(memory: io.BytesIO) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the files of a workbook that are not sheets, and the sheets, by name."""
    parts: dict[str, bytes] = {}
    contents: dict[str, bytes] = {}
    with zipfile.ZipFile(memory) as archive:
        for name in archive.namelist():
            target = contents if name.startswith("xl/worksheets/sheet") else parts
            target[name] = archive.read(name)
    return parts, contents


def _split_sheets(contents: Mapping[str, bytes], table_sheet_count: int) -> dict[str, tuple[bytes, bytes]]:
    """Return the bytes before and after the rows of each sheet."""
    sheets: dict[str, tuple[bytes, bytes]] = {}
    for index, (name, content) in enumerate(contents.items()):
        head, tail = SHEET_DATA.split(content)
        if index < table_sheet_count:
            # keep only the answer sheet selected, because Excel edits all selected sheets at once
            head = head.replace(_SELECTED_TAB, b"")
        sheets[name] = head, tail
    return sheets


def _map_styles(style_numbers: Sequence[int]) -> tuple[dict[Colour | None, int], dict[Colour | None, int]]:
    """Return the styles of numbers and of percentages by colour, from the styles of all cell formats."""
    colors = (None, *FILL_COLORS)
    _, *color_styles = style_numbers
    styles = dict(zip(colors, (0, *color_styles)))
    percent_styles = dict(zip(colors, color_styles[len(FILL_COLORS) :]))
    return styles, percent_styles or styles


def _read_line_styles(content: bytes, answer: Sequence[AnswerLine]) -> dict[str, int]:
    """Return the styles of the lines of the answer sheet by their kind."""
    line_styles = [int(style) for style in _LINE_STYLE.findall(content)]
    return {line.kind: style for line, style in zip(answer, line_styles, strict=True)}


def _add_rule(sheet: Any, cells: tuple[int, int, int, int], rule: str, style: Any) -> None:
    """Add a conditional format that applies to the cells of a range for which a formula is true."""
    first = xl_rowcol_to_cell(cells[0], cells[1])
    sheet.conditional_format(*cells, {"type": "formula", "criteria": f"={rule.format(first)}", "format": style})


def _add_answer(book: Any, answer: Sequence[AnswerLine], sheet_row_count: int, last_column: int) -> None:
    """Add the sheet of the answer, its links, and the format of the suspects."""
    tables = list(book.worksheets())
    styles = {
        kind: book.add_format({"text_wrap": True, "valign": "top", **line_format})
        for kind, line_format in LINE_FORMATS.items()
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
        table, row = tables[line.row // sheet_row_count], line.row % sheet_row_count + 1
        place = f"internal:{table.get_name()}!{xl_rowcol_to_cell(row, 0)}"
        sheet.write_url(number, 0 if line.kind == "cause" else 1, place, styles[line.kind], " ")
        if line.kind == "cause":
            _add_rule(table, (row, 0, row, last_column), "TRUE", suspect)
    sheet.activate()

"""Reading and writing of the pre-check's csv files (docs/standards.md#csv).

They are UTF-8 with a byte order mark; headers are in Chinese or English.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from probe_reporters.api import neutralise

from probe_core.errors import UserError, make_printable
from probe_core.files.atomic import write_bytes
from probe_core.files.user_files import read_regular_file
from probe_precheck.model import Message
from probe_precheck.tables import CsvColumn

BLANK = " "
"""Text of a cell without a value."""
SMALL_MAGNITUDE = 1e-3
"""Magnitude below which numbers are written with an exponent."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Byte order mark of UTF-8, by which spreadsheets recognize the encoding."""
SENTENCE_ENDS = (".", "。", ";")
"""Ends of a sentence. In a cell, a semicolon separates a message with another end from the next message."""
OTHER_SEPARATORS = ";\t|"
MAX_CELL_CHARACTERS = 1 << 20
"""Largest number of characters of a cell."""


class CsvTable(NamedTuple):
    """Contents of a csv file.

    Attributes:
        columns: The columns, in the order of the file.
        rows: The rows, by column key.
        language: The language of the headers.
        complete_bytes: The number of bytes up to the last complete row.
        is_cut: True if an incomplete row follows.
        tail: The text of that incomplete row.
    """

    columns: tuple[CsvColumn, ...]
    rows: list[dict[str, str]]
    language: str
    complete_bytes: int
    is_cut: bool
    tail: str = ""


def format_number(value: float | int, precision: int) -> str:
    """Return the text of a number with ``precision`` digits after the point; small numbers have an exponent."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return str(float(value))
    return f"{value:.{precision}{'e' if 0 < abs(value) < SMALL_MAGNITUDE else 'f'}}"


def format_messages(messages: Iterable[Message], language: str) -> str:
    """Return messages as the text of one cell, each once (docs/standards.md#csv)."""
    texts = [*filter(None, dict.fromkeys(message.text(language).strip() for message in messages))]
    sentences = (text if text.endswith(SENTENCE_ENDS) else f"{text};" for text in texts[:-1])
    return " ".join([*sentences, *texts[-1:]])


def format_cell_text(text: str) -> str:
    """Return the text of a cell in a file: a blank if the text is empty, and never a formula of a spreadsheet."""
    return neutralise(text).replace("\r", " ") if text.strip() else BLANK


def format_rows(rows: Iterable[Sequence[str]]) -> bytes:
    """Return rows of texts as csv, in which no cell is a formula of a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([format_cell_text(cell) for cell in row] for row in rows)
    return text.getvalue().encode("utf-8")


def format_header(columns: Sequence[CsvColumn], language: str) -> bytes:
    """Return the beginning of a file: the byte order mark and the headers."""
    return BYTE_ORDER_MARK + format_rows([[column.header(language) for column in columns]])


def order_cells(values: Mapping[str, str], columns: Sequence[CsvColumn]) -> list[str]:
    """Return the cells of a row in the order of the columns, blank if missing."""
    return [values.get(column.key, BLANK) for column in columns]


def write_table(path: Path, columns: Sequence[CsvColumn], rows: Iterable[Mapping[str, str]], language: str) -> None:
    """Write a csv file at once, with its header.

    Raises:
        UserError: The file cannot be written.
    """
    write_bytes(path, format_header(columns, language) + format_rows(order_cells(row, columns) for row in rows))


def _decode(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(
            f"{path} is not UTF-8 text.",
            "A spreadsheet may have saved it: save it as CSV UTF-8, or run the check again.",
        ) from None


def _parse_row(path: Path, number: int, row: Sequence[str], columns: Sequence[CsvColumn]) -> dict[str, str]:
    """Return the cells of a line by the keys of their columns."""
    if len(row) != len(columns):
        raise UserError(
            f"{path}, line {number} has {len(row)} cells where the header has {len(columns)}.",
            "The file may have been edited or cut off: correct that row, or run the check again.",
        )
    return {column.key: cell for column, cell in zip(columns, row)}


def read_table(
    path: Path, columns: Sequence[CsvColumn], required: Iterable[str], *, may_be_cut: bool = False
) -> CsvTable:
    """Read a csv file whose headers are those of ``columns``, in either language, and in any order and case.

    Args:
        path: The file.
        columns: The known columns. The key of another column is its header.
        required: The keys of the required columns.
        may_be_cut: True to ignore the last row if it is incomplete.

    Raises:
        UserError: The file cannot be read, lacks a column, or has a row with another number of cells.
    """
    data = _read_bytes(path)
    end = data.rfind(b"\n") + 1 if may_be_cut else len(data)
    rows = _parse_rows(path, _decode(path, data[:end]))
    if not rows:
        raise UserError(f"{path} is empty.", "Give a csv file that probe run_ut wrote.")
    present, language = _parse_columns(path, rows[0][1], columns)
    missing = [column for column in columns if column.key in set(required) and column not in present]
    if missing:
        raise UserError(
            f'{path} has no column "{missing[0].header(language)}".',
            "Give a csv file that probe run_ut wrote; these columns are missing:",
            [column.header(language) for column in missing],
        )
    parsed = [_parse_row(path, number, row, present) for number, row in rows[1:] if any(cell.strip() for cell in row)]
    return CsvTable(present, parsed, language, end, end < len(data), data[end:].decode("utf-8", "ignore"))


def _read_bytes(path: Path) -> bytes:
    try:
        return read_regular_file(path)
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise UserError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'no such path'}.",
            "Check the path and its permissions.",
        ) from None


def _parse_rows(path: Path, text: str) -> list[tuple[int, list[str]]]:
    """Return the rows that are not empty, each with the number of its last line."""
    reader = csv.reader(io.StringIO(text, newline=""))
    previous_limit = csv.field_size_limit(MAX_CELL_CHARACTERS)  # a limit of the whole process
    try:
        return [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise UserError(
            f"{path} is not valid csv: {make_printable(str(error))}.", "Correct the file, or run the check again."
        ) from None
    finally:
        csv.field_size_limit(previous_limit)


def _parse_columns(path: Path, row: Sequence[str], columns: Sequence[CsvColumn]) -> tuple[tuple[CsvColumn, ...], str]:
    """Return the columns that the headers name, and the language of the headers."""
    by_header: dict[str, CsvColumn] = {}
    for column in columns:
        by_header.setdefault(column.chinese.casefold(), column)
        by_header.setdefault(column.english.casefold(), column)
    names = [cell.strip() for cell in row]
    if len(names) == 1 and any(mark in names[0] for mark in OTHER_SEPARATORS):
        raise UserError(
            f"The cells of {path} are not separated by commas.",
            "A spreadsheet may have saved it; save it as comma separated values in UTF-8.",
        )
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f'{path} has two columns "{make_printable(name)}".', "Give the file as probe run_ut wrote it."
            )
    present = tuple(by_header.get(name.casefold(), CsvColumn(name, name, name)) for name in names)
    translated = [column for column in present if column.chinese != column.english]
    is_english = any(
        name.casefold() == column.english.casefold() for name, column in zip(names, present) if column in translated
    )
    return present, "en" if is_english else "zh"

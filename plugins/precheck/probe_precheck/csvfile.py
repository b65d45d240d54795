"""The csv files of the pre-check: UTF-8 with a byte order mark, headers in Chinese or English."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from probe_core.errors import UserError, printable
from probe_core.files.given import read_given
from probe_core.spreadsheet_text import neutralise
from probe_precheck.model import Message
from probe_precheck.tables import Column

BLANK = " "
"""What a cell without a value holds."""
SMALL = 1e-3
"""Magnitudes below are written with an exponent (decision A6)."""
MARK = b"\xef\xbb\xbf"
OTHER_SEPARATORS = ";\t|"
LARGEST_CELL = 1 << 20


class Table(NamedTuple):
    """A csv file, read: its columns, its rows by column key, and how many bytes of it are whole rows.

    ``language`` is that of its headers; ``whole`` is less than the file's size where its last row is cut off;
    ``tail`` is what is left of that row.
    """

    columns: tuple[Column, ...]
    rows: list[dict[str, str]]
    language: str
    whole: int
    is_cut: bool
    tail: str = ""


def number_text(value: float | int, precision: int) -> str:
    """A number as the tables have it: with ``precision`` digits, and an exponent where it is small."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return str(float(value))
    return f"{value:.{precision}{'e' if 0 < abs(value) < SMALL else 'f'}}"


def message_text(messages: Iterable[Message], language: str) -> str:
    """Messages in one cell, each once."""
    return " ".join(dict.fromkeys(message.text(language).strip() for message in messages))


def lines(rows: Iterable[Sequence[str]]) -> bytes:
    """Rows of texts as csv, with nothing in them that a spreadsheet takes for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(
        [neutralise(cell).replace("\r", " ") if cell.strip() else BLANK for cell in row] for row in rows
    )
    return text.getvalue().encode("utf-8")


def header(columns: Sequence[Column], language: str) -> bytes:
    """The beginning of a file: the byte order mark and the headers."""
    return MARK + lines([[column.header(language) for column in columns]])


def cells(values: Mapping[str, str], columns: Sequence[Column]) -> list[str]:
    """The cells of a row in the order of the columns."""
    return [values.get(column.key, BLANK) for column in columns]


def read_table(
    path: Path, columns: Sequence[Column], required: Iterable[str], *, may_be_cut: bool = False
) -> Table:
    """The csv file ``path``, whose headers are those of ``columns`` in either language, order and case.

    Args:
        path: The file.
        columns: Those that are known; columns that are not are kept under their header.
        required: The keys of those that must be there.
        may_be_cut: Leave the last row out where the file ends within it.

    Raises:
        UserError: It cannot be read, lacks a column, or has a row with another number of cells.
    """
    data = _bytes(path)
    end = data.rfind(b"\n") + 1 if may_be_cut else len(data)
    try:
        text = data[:end].decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(
            f"{path} is no text in UTF-8.",
            "A spreadsheet may have saved it; choose CSV UTF-8, or check again.",
        ) from None
    rows = _rows(path, text)
    if not rows:
        raise UserError(f"{path} is empty.", "Give a csv file that the pre-check wrote.")
    found, language = _columns(path, rows[0][1], columns)
    missing = [column for column in columns if column.key in set(required) and column not in found]
    if missing:
        raise UserError(
            f'{path} has no column "{missing[0].header(language)}".',
            "Give a csv file that the pre-check wrote; these columns are missing:",
            [column.header(language) for column in missing],
        )
    keys = [column.key for column in found]
    parsed = []
    for number, row in rows[1:]:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(keys):
            raise UserError(
                f"{path}, line {number} has {len(row)} cells where the header has {len(keys)}.",
                "The file may have been edited or cut off; check again, or mend that row.",
            )
        parsed.append(dict(zip(keys, row)))
    return Table(found, parsed, language, end, end < len(data), data[end:].decode("utf-8", "ignore"))


def _bytes(path: Path) -> bytes:
    try:
        return read_given(path)
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise UserError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'no such path'}.",
            "Check the path and its permissions.",
        ) from None


def _rows(path: Path, text: str) -> list[tuple[int, list[str]]]:
    """The rows that are not blank, each with the number of its last line."""
    reader = csv.reader(io.StringIO(text, newline=""))
    before = csv.field_size_limit(LARGEST_CELL)  # which is one for the whole process
    try:
        return [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise UserError(
            f"{path} is no valid csv: {printable(str(error))}.", "Check again, or mend the file."
        ) from None
    finally:
        csv.field_size_limit(before)


def _columns(path: Path, row: Sequence[str], columns: Sequence[Column]) -> tuple[tuple[Column, ...], str]:
    """What the headers are, and in which language."""
    by_header: dict[str, Column] = {}
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
                f'{path} has two columns "{printable(name)}".', "Give the file as it was written."
            )
    found = tuple(by_header.get(name.casefold(), Column(name, name, name)) for name in names)
    translated = [column for column in found if column.chinese != column.english]
    is_english = any(
        name.casefold() == column.english.casefold()
        for name, column in zip(names, found)
        if column in translated
    )
    return found, "en" if is_english else "zh"


def plain(value: Any) -> str:
    """A cell's text: blank for None."""
    return BLANK if value is None else str(value)

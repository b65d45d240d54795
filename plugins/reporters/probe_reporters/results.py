"""Reading of result files: the newest table of each rank in a directory, and its rows."""

from __future__ import annotations

import csv
import json
import re
import warnings
import zipfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_core.model import Cell, Mode, Percent
from probe_core.model.plan import TIME_STAMP_PATTERN
from probe_reporters.answer_sheet import ANSWER_SHEET_NAME as ANSWER
from probe_reporters.spreadsheet_text import neutralise
from probe_reporters.table import CONSISTENT_COLUMN, format_statistic
from probe_reporters.tables import COLUMNS

FORMATS = ("jsonl", "csv", "xlsx")
"""The formats that can be read, in the order of preference."""
MAX_FILE_BYTES = 1 << 30
"""Largest size in bytes of a result file (docs/tables.md#limits)."""
MAX_FIELD_LENGTH = 1 << 26
"""Largest number of characters in a csv field; call stacks may exceed Python's default of 131,072."""
MAX_EXCEL_ROWS = 1_048_576

NAME_HEADER = "NPU Name"
TARGET_MAX_HEADER, GOLDEN_MAX_HEADER = "NPU max", "Bench max"
RECOMPARE_FIX = "Compare that rank again, or copy its file again."

METRIC_COLUMNS: dict[Mode, tuple[str, ...]] = {
    mode: tuple(c.header for c in columns if not c.source.startswith(("target.", "golden.", "row.")))
    for mode, columns in COLUMNS.items()
    if mode is not Mode.MD5
}
"""Metric columns that can be merged, by mode."""
MERGEABLE_COLUMNS: dict[Mode, tuple[str, ...]] = {
    mode: (*metrics, CONSISTENT_COLUMN.header) for mode, metrics in METRIC_COLUMNS.items()
}
"""Columns that can be merged, by mode (docs/tables.md#merged)."""
_MODE_COLUMNS = {**METRIC_COLUMNS, Mode.MD5: ("NPU MD5", "BENCH MD5")}

MERGED_FILE_PREFIX = "multi_ranks_compare_merge_"
"""The beginning of the names of merged results."""
_RANK_RESULT = re.compile(rf"compare_result_rank([0-9]+)(?:-rank[0-9]+)?_({TIME_STAMP_PATTERN})\.(jsonl|csv|xlsx)")
_UNNUMBERED_RESULT = re.compile(rf"compare_result_(?:rank_|rank-rank_)?{TIME_STAMP_PATTERN}\..*")
_OTHER_PREFIXES = (
    "debug_compare_result_",
    "compare_summary_",
    "advisor_",
    "diff_analyze_",
    MERGED_FILE_PREFIX,
)
_NUMBER = re.compile(r"[+-]?[0-9]{1,400}(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_BOOLEANS = {"True": True, "False": False}

Warn = Callable[[str], None]
"""A function that is called with a sentence on each file, rank or API that is left out."""


@dataclass(frozen=True, slots=True)
class ResultFile:
    """The result file of one rank."""

    rank: int
    path: Path
    time_stamp: str

    @property
    def order(self) -> tuple[int, str]:
        """The sort key among files of one rank and time: the preferred format first, then by name."""
        return FORMATS.index(self.path.suffix[1:]), self.path.name


# -- choosing files ------------------------------------------------------------------------


def find_results(directory: Path, warn: Warn) -> list[ResultFile]:
    """Return one result file for each rank, in the order of the ranks.

    If a rank has files of several times, the newest file is used. Among formats, jsonl precedes csv and xlsx.

    Args:
        directory: The directory of the result files.
        warn: Function that is called for each file that is left out and might have been meant.

    Raises:
        UserError: ``directory`` cannot be listed.
    """
    ranks: dict[int, list[ResultFile]] = {}
    for path in _list_directory(directory):
        match = _RANK_RESULT.fullmatch(path.name)
        if match and path.is_file():
            ranks.setdefault(int(match[1]), []).append(ResultFile(int(match[1]), path, match[2]))
        elif match:
            warn(f'"{path.name}" is not a file. It is left out.')
        elif path.suffix[1:].lower() in FORMATS and not path.name.startswith(_OTHER_PREFIXES):
            warn(f'"{path.name}" {_explain_rejection(path)}. It is left out.')
    return [_select_newest(rank, ranks[rank], warn) for rank in sorted(ranks)]


def _list_directory(directory: Path) -> list[Path]:
    fix = "Give the directory that holds the result files of all ranks with -i."
    if directory.is_file():
        raise UserError(f'"{directory}" is a file, not a directory.', fix)
    try:
        return sorted(directory.iterdir())
    except (OSError, ValueError) as error:
        raise UserError(
            f'The directory "{directory}" cannot be read: {getattr(error, "strerror", None) or error}.', fix
        ) from None


def _explain_rejection(path: Path) -> str:
    if path.stem.endswith("_interrupted"):
        return "is the result of an interrupted comparison"
    if _UNNUMBERED_RESULT.fullmatch(path.name):
        return "is the result of a single rank without a number"
    return 'is not named like the result of a rank, "compare_result_rank{n}_{14 digits}"'


def _select_newest(rank: int, files: Sequence[ResultFile], warn: Warn) -> ResultFile:
    newest_stamp = max(file.time_stamp for file in files)
    chosen = min((file for file in files if file.time_stamp == newest_stamp), key=lambda file: file.order)
    older = [f'"{file.path.name}"' for file in files if file.time_stamp != newest_stamp]
    if older:
        warn(f'Of rank {rank} the newest result is taken, "{chosen.path.name}"; left out: {", ".join(older)}.')
    return chosen


# -- reading a file -------------------------------------------------------------------------


def read_headers(path: Path) -> list[str]:
    """Return the headers of a result file.

    Raises:
        UserError: The file is damaged, or too large.
    """
    with _translate_errors(path), closing(_READERS[path.suffix](path)) as parts:
        for part in parts:
            return part.headers
    raise UserError(f'"{path.name}" is empty.', RECOMPARE_FIX)


def find_mode(headers: Sequence[str]) -> Mode | None:
    """Return the mode whose columns are all among ``headers``; None if there is none.

    If the columns of two modes are complete, for example because ``--metric`` added some, the table is of the
    mode whose columns come first.
    """
    complete = [mode for mode, signs in _MODE_COLUMNS.items() if set(signs) <= set(headers)]
    return min(complete, key=lambda mode: headers.index(_MODE_COLUMNS[mode][0]), default=None)


def find_percent_columns(headers: Sequence[str]) -> frozenset[int]:
    """Return the indices of the columns of percentages among the headers of a result."""
    mode = find_mode(headers)
    named = {column.header for column in COLUMNS[mode] if column.style == "percent"} if mode else set()
    return frozenset(place for place, header in enumerate(headers) if header in named)


def read_rows(path: Path, metrics: Sequence[str], is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, list[Cell]]]:
    """Yield the name and the metrics of each wanted row, in the order of the file.

    A metric without a number (``N/A``, ``unsupported``, ``Nan``, an empty cell) is replaced by the maxima of
    both sides (docs/tables.md#merged).

    Args:
        path: The result file.
        metrics: The headers of the columns to read.
        is_wanted: Function that returns True for the names of wanted rows.

    Raises:
        UserError: The file is damaged, or too large, or lacks a column.
    """
    columns = (NAME_HEADER, TARGET_MAX_HEADER, GOLDEN_MAX_HEADER, *metrics)
    with _translate_errors(path):
        for part in _READERS[path.suffix](path):
            missing = [column for column in columns if column not in part.headers]
            if missing:
                raise UserError(f'"{path.name}"{part.place} has no column "{missing[0]}".', RECOMPARE_FIX)
            for row in part.rows(columns):
                name = neutralise(str(row[0]))
                if is_wanted(name):
                    yield name, _convert_metrics(row)


_MISSING_TEXTS = frozenset({"", "N/A", "unsupported", "Nan", "nan", "NaN"})


def _convert_metrics(row: Sequence[object]) -> list[Cell]:
    """Return the metrics of a row that begins with its name and the two maxima."""
    _, target, golden, *metrics = row
    cells: list[Cell] = []
    for value in metrics:
        text = _format_text(value)
        if value is None or text in _MISSING_TEXTS:
            cells.append(f"NPU:{_format_text(target)}  Bench:{_format_text(golden)}")
        elif isinstance(value, (bool, Percent)):
            cells.append(value)
        else:
            cells.append(format_statistic(value) if isinstance(value, (int, float)) else _parse_text(text))
    return cells


def _format_text(value: object) -> str:
    if isinstance(value, str):
        return neutralise(value).strip()
    return str(format_statistic(value)) if value is None or isinstance(value, (int, float)) else str(value)


def _parse_text(text: str) -> Cell:
    """Return the number or boolean that a text represents; csv files and some workbooks contain only texts."""
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    match = _NUMBER.fullmatch(text.removesuffix("%"))
    if not match:
        return text
    if text.endswith("%"):
        percent = str.__new__(Percent, text)
        percent.ratio = float(text[:-1]) / 100
        return percent
    return format_statistic(float(text) if match[1] or match[2] else int(text))


# -- the formats ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ResultTable:
    """One table of a file: its place, its headers, and a function that yields chosen columns of its rows."""

    place: str
    headers: list[str]
    rows: Callable[[Sequence[str]], Iterator[Sequence[object]]]


_ResultTables = Generator[_ResultTable, None, None]


def _create_damage_error(path: Path, location: str, reason: str) -> UserError:
    return UserError(f'"{path.name}" is damaged{location}: {reason}.', RECOMPARE_FIX)


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Turn errors in the block into messages about the file, and refuse a file that is too large."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(
                f'"{path.name}" is larger than 1 GiB.', "Compare fewer ops at a time, or write csv instead."
            )
        yield
    except UnicodeDecodeError:
        raise UserError(f'"{path.name}" is not UTF-8.', f"Save it as UTF-8. {RECOMPARE_FIX}") from None
    except OSError as error:
        raise UserError(f'"{path.name}" cannot be read: {error.strerror or error}.', RECOMPARE_FIX) from None


def _read_csv(path: Path) -> _ResultTables:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_LENGTH))
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, strict=True)

        def read_line() -> list[str] | None:
            try:
                return next(lines, None)
            except csv.Error as error:
                raise _create_damage_error(path, f" at line {lines.line_num}", str(error)) from None

        headers = read_line() or []

        def iterate_columns(columns: Sequence[str]) -> Iterator[Sequence[object]]:
            places = [headers.index(column) for column in columns]
            while (row := read_line()) is not None:
                if len(row) == len(headers):
                    yield [row[place] for place in places]
                elif row:
                    reason = f"it has {len(row)} cells, the header {len(headers)}"
                    raise _create_damage_error(path, f" at line {lines.line_num}", reason)

        if headers:
            yield _ResultTable("", headers, iterate_columns)


def _read_jsonl(path: Path) -> _ResultTables:
    with path.open(encoding="utf-8-sig") as file:

        def iterate_objects() -> Iterator[tuple[int, dict[str, Any]]]:
            for number, text in enumerate(file, 1):
                if text.strip():
                    yield number, _parse_object(path, number, text)

        def iterate_columns(columns: Sequence[str]) -> Iterator[Sequence[object]]:
            for number, row in chain(first, numbered):
                try:
                    yield [row[column] for column in columns]
                except KeyError as error:
                    raise _create_damage_error(path, f" at line {number}", f"the row has no {error}") from None

        numbered = iterate_objects()
        first = list(islice(numbered, 1))
        if first:
            yield _ResultTable("", list(first[0][1]), iterate_columns)


def _parse_object(path: Path, number: int, text: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        raise _create_damage_error(path, f" at line {number}", "it is not JSON, or was cut off") from None
    if not isinstance(row, dict):
        raise _create_damage_error(path, f" at line {number}", "it is not a JSON object")
    return row


def _read_xlsx(path: Path) -> _ResultTables:
    import openpyxl

    try:
        with zipfile.ZipFile(path) as parts, suppress(KeyError):
            if parts.getinfo("xl/sharedStrings.xml").file_size > MAX_FILE_BYTES:
                raise UserError(f'"{path.name}" holds more than 1 GiB of text.', "Write csv instead.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            book = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
        try:
            sheets = [sheet for sheet in book.worksheets if sheet.title != ANSWER]
            for sheet in sheets:
                sheet.reset_dimensions()
                rows = islice(sheet.iter_rows(values_only=True), MAX_EXCEL_ROWS)
                head = next(rows, ())
                if any(cell is not None for cell in head):
                    place = f', sheet "{sheet.title}",' if len(sheets) > 1 else ""
                    yield _create_sheet_table(path, place, [str(cell) for cell in head], rows)
        finally:
            book.close()
    except (UserError, MemoryError, OSError):
        raise
    except Exception as error:  # openpyxl raises anything for a bad file
        reason = "it is not an Excel workbook, or was cut off"
        raise _create_damage_error(path, "", reason) from error


def _create_sheet_table(
    path: Path, place: str, headers: list[str], content: Iterator[Sequence[object]]
) -> _ResultTable:
    def iterate_columns(columns: Sequence[str]) -> Iterator[Sequence[object]]:
        places = [headers.index(column) for column in columns]
        percent = find_percent_columns(headers)
        for number, row in enumerate(content, 2):
            full = row if len(row) >= len(headers) else [*row, *repeat(None, len(headers) - len(row))]
            if full[places[0]] is not None:
                yield [
                    Percent(float(cell)) if place in percent and isinstance(cell, (int, float)) else cell
                    for place, cell in ((place, full[place]) for place in places)
                ]
            elif any(cell is not None for cell in row):
                raise _create_damage_error(path, f"{place} at row {number}", f"it has no {NAME_HEADER}")

    return _ResultTable(place, headers, iterate_columns)


_READERS: dict[str, Callable[[Path], _ResultTables]] = {
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".xlsx": _read_xlsx,
}

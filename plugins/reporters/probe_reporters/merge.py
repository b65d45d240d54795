"""Merging of the results of several ranks: for each metric a table with a column per rank."""

from __future__ import annotations

import errno
import io
import re
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from probe_core.errors import UserError, find_nearest_names
from probe_core.files.atomic import AtomicFile, create_write_error, make_directory, remove_leftovers
from probe_core.model import Cell, Mode, Percent
from probe_core.model.plan import TIME_STAMP_FORMAT
from probe_core.progress import report_progress
from probe_reporters.csv import CsvReporter
from probe_reporters.jsonl import JsonlReporter
from probe_reporters.lines import sheet_row, styled_row
from probe_reporters.protocols import TableWriter
from probe_reporters.results import (
    MERGEABLE_COLUMNS,
    MERGED_FILE_PREFIX,
    NAME_HEADER,
    RECOMPARE_FIX,
    ResultFile,
    Warn,
    find_mode,
    find_results,
    read_headers,
    read_rows,
)
from probe_reporters.text import MAX_SHEET_ROWS, format_excel_text
from probe_reporters.time_stamps import claim_time_stamp
from probe_reporters.xlsx import (
    COMPRESSION_LEVEL,
    MAX_CELLS_WITHOUT_ZIP64,
    create_archive_entry,
    replace_percentages,
)
from probe_reporters.xlsx_template import CREATION_TIME, HEADER_STYLE, PERCENT_FORMAT, SHEET_DATA

FORMATS = ("xlsx", "csv", "jsonl")
"""The formats of merged tables."""
MAX_TITLE_LENGTH = 31
"""Largest number of characters in the name of an Excel sheet."""
MIN_COLUMN_WIDTH, MAX_COLUMN_WIDTH = 20, 80
"""Limits of the widths of columns, in characters."""
MAX_LISTED_ITEMS = 8
"""Number of names or ranks that a message lists."""

_STEM = re.compile(r"(?:Module|Cell)\..+?(?=\.(?:forward|backward|parameters_grad)(?:\.|$))|.+?(?=\.[0-9]+(?:\.|$))")
_NOT_IN_TITLE = re.compile(r"[\[\]:*?/\\]")

RowKey = tuple[str, int]
"""A row of the merged table: its name, and its number among the rows of that name in each rank."""


@dataclass(frozen=True, slots=True)
class MergeConfig:
    """The selection of rows and metrics to merge.

    Attributes:
        apis: Rows are merged if their names contain one of these, followed by a dot.
        metrics: The metrics to merge; empty for all.
    """

    apis: tuple[str, ...]
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The outcome of merging.

    Attributes:
        files: The files that were written.
        ranks: The numbers of the merged ranks.
        metrics: The merged metrics.
        row_count: The number of rows of each table.
        damaged: The names of result files that were left out because they are damaged.
    """

    files: tuple[Path, ...]
    ranks: tuple[int, ...]
    metrics: tuple[str, ...]
    row_count: int
    damaged: tuple[str, ...]


def merge_results(
    directory: Path,
    output: Path,
    config: MergeConfig,
    *,
    format: str = "xlsx",
    time_stamp: str | None = None,
    warn: Warn | None = None,
) -> MergeResult:
    """Merge the result files of the ranks in ``directory`` into tables in ``output``.

    Args:
        directory: The directory of the result files.
        output: The directory of the merged files, which is created if necessary.
        config: The rows and metrics to merge.
        format: ``xlsx`` for one workbook with a sheet per metric, ``csv`` or ``jsonl`` for a file per metric.
        time_stamp: Part of the files' names, as 14 digits; None for now, or the next free second.
        warn: Function that is called with a sentence on each file, rank or API that is left out; None to
            issue Python warnings.

    Raises:
        UserError: Fewer than two ranks can be merged, their modes are mixed and no metrics are chosen,
            none of the APIs is in any of them, or the output cannot be written.
    """
    if format not in FORMATS:
        raise UserError(f'There is no format "{format}" of merged results.', "Choose one of:", FORMATS)
    warn = warn or _warn
    damaged: list[str] = []

    def leave_out(file: ResultFile, error: UserError) -> None:
        warn(f"{error.what} {error.fix} Rank {file.rank} is left out.")
        damaged.append(file.path.name)

    modes = _find_modes(find_results(directory, warn), warn, leave_out)
    metrics = config.metrics or _select_all_metrics(directory, modes)
    files = _select_files(metrics, modes, warn)
    _check_count(directory, files)
    selection = _Selection(config.apis)
    ranks = _read_ranks(files, metrics, selection, leave_out)
    _check_count(directory, ranks)
    selection.warn_missing_apis(ranks, warn)
    table = _MergedTable(metrics, ranks, selection.order_rows(ranks))
    if time_stamp is not None:
        written = _write(table, output, time_stamp, format)
    else:
        with claim_time_stamp(output, time.strftime(TIME_STAMP_FORMAT)) as claim:
            written = _write(table, output, claim, format)
    numbers = tuple(rank.number for rank in ranks)
    return MergeResult(written, numbers, metrics, len(table.keys), tuple(damaged))


def _read_ranks(
    files: Sequence[ResultFile],
    metrics: Sequence[str],
    selection: _Selection,
    leave_out: Callable[[ResultFile, UserError], None],
) -> list[_RankRows]:
    """Return the rows of all ranks whose files can be read."""
    ranks: list[_RankRows] = []
    for done, file in enumerate(files):
        report_progress("reading results", done, len(files))
        try:
            ranks.append(_read(file, metrics, selection))
        except UserError as error:
            leave_out(file, error)
    report_progress("reading results", len(files), len(files))
    return ranks


class MergeWarning(UserWarning):
    """A warning that a file, rank or API is left out of a merged table."""


def _warn(text: str) -> None:
    warnings.warn(text, MergeWarning, stacklevel=3)


# -- which files and metrics ----------------------------------------------------------------


def _find_modes(
    files: Sequence[ResultFile], warn: Warn, leave_out: Callable[[ResultFile, UserError], None]
) -> dict[ResultFile, Mode]:
    """Return the files with a table that can be merged, and the mode of each."""
    modes: dict[ResultFile, Mode] = {}
    for file in files:
        try:
            mode = find_mode(read_headers(file.path))
        except UserError as error:
            leave_out(file, error)
            continue
        if mode is None:
            what = f'"{file.path.name}" lacks columns: it does not hold all metrics of any mode.'
            leave_out(file, UserError(what, RECOMPARE_FIX))
        elif mode not in MERGEABLE_COLUMNS:
            warn(f'"{file.path.name}" holds checksums, which cannot be merged. It is left out.')
        else:
            modes[file] = mode
    return modes


def _select_all_metrics(directory: Path, modes: dict[ResultFile, Mode]) -> tuple[str, ...]:
    """Return the metrics of the mode that all files have."""
    _check_count(directory, modes)
    if len(set(modes.values())) > 1:
        raise UserError(
            f'The ranks in "{directory}" were compared in different modes.',
            "Name metrics of one mode under compare_index, or keep the ranks of one mode in the directory:",
            _shorten_list([f"{file.path.name}: {mode.value}" for file, mode in modes.items()]),
        )
    return MERGEABLE_COLUMNS[next(iter(modes.values()))]


def _select_files(metrics: Sequence[str], modes: dict[ResultFile, Mode], warn: Warn) -> list[ResultFile]:
    """Return the files whose mode has all ``metrics``."""
    files = []
    for file, mode in modes.items():
        lacking = [metric for metric in metrics if metric not in MERGEABLE_COLUMNS[mode]]
        if lacking:
            warn(f'"{file.path.name}" is of mode {mode.value}, which has no "{lacking[0]}". It is left out.')
        else:
            files.append(file)
    if len({modes[file] for file in files}) > 1:
        warn("Ranks of different modes are merged; their numbers cannot be compared with each other.")
    return files


def _check_count(directory: Path, ranks: Sequence[object] | dict[ResultFile, Mode]) -> None:
    if len(ranks) < 2:
        content = "the result of one rank only" if ranks else "no result of a rank"
        raise UserError(
            f'"{directory}" holds {content} that can be merged; two are needed.',
            "Give the directory with the results of all ranks with -i; "
            "they are named compare_result_rank{n}_{14 digits}.xlsx, .csv or .jsonl.",
        )


def _shorten_list(items: Sequence[str]) -> list[str]:
    more = len(items) - MAX_LISTED_ITEMS
    return list(items) if more <= 1 else [*items[:MAX_LISTED_ITEMS], f"and {more} more"]


# -- which rows -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RankRows:
    """The wanted rows of one rank, and the positions of the APIs that occur in them."""

    number: int
    rows: dict[RowKey, list[Cell]]
    api_numbers: frozenset[int]


@dataclass(frozen=True, slots=True)
class _MergedTable:
    """All merged tables, which have the same rows."""

    metrics: Sequence[str]
    ranks: Sequence[_RankRows]
    keys: Sequence[RowKey]

    @property
    def headers(self) -> list[str]:
        return [NAME_HEADER, *(f"rank{rank.number}" for rank in self.ranks)]

    def rows(self, metric: int, start: int, stop: int) -> Iterator[list[Cell]]:
        """Yield some rows of a metric's table; None for ranks without such a row."""
        for key in self.keys[start:stop]:
            cells_of_ranks = (rank.rows.get(key) for rank in self.ranks)
            yield [key[0], *(cells[metric] if cells is not None else None for cells in cells_of_ranks)]


class _Selection:
    """The rows that the configuration selects, and the names of all APIs in the results."""

    def __init__(self, apis: Sequence[str]) -> None:
        self._apis = apis
        self._parts = [f"{api}." for api in apis]
        self._met: set[str] = set()

    def find_apis(self, name: str) -> list[int]:
        """Return the positions of the APIs that the row ``name`` belongs to."""
        stem = _STEM.match(name)
        self._met.add(stem[0] if stem else name)
        return [number for number, part in enumerate(self._parts) if part in name]

    def order_rows(self, ranks: Sequence[_RankRows]) -> list[RowKey]:
        """Return all rows: by the first API that they belong to, then in their order, rank by rank."""
        groups: list[dict[RowKey, None]] = [{} for _ in self._parts]
        for rank in ranks:
            for key in rank.rows:
                groups[self.find_apis(key[0])[0]].setdefault(key)
        return list(chain.from_iterable(groups))

    def warn_missing_apis(self, ranks: Sequence[_RankRows], warn: Warn) -> None:
        """Warn of APIs that ranks lack.

        Raises:
            UserError: No rank has any of the APIs.
        """
        if not any(rank.rows for rank in ranks):
            raise UserError(
                "No rank has a row of any API listed under api.",
                "Write the beginnings of row names, such as Distributed.all_reduce or "
                "Distributed.all_reduce.0.forward. Listed:",
                _shorten_list([f'"{api}"{self._suggest_names(api)}' for api in self._apis]),
            )
        for number, api in enumerate(self._apis):
            lacking = [f"rank{rank.number}" for rank in ranks if number not in rank.api_numbers]
            if len(lacking) == len(ranks):
                warn(f'No rank has a row of "{api}"{self._suggest_names(api)}.')
            elif lacking:
                warn(f'"{api}" has no row in {", ".join(_shorten_list(lacking))}; the cells there are blank.')

    def _suggest_names(self, api: str) -> str:
        close = find_nearest_names(api, sorted(self._met))
        return f"  (nearest: {', '.join(close)})" if close else ""


def _read(file: ResultFile, metrics: Sequence[str], selection: _Selection) -> _RankRows:
    """Return the wanted rows of a file; rows of equal names are numbered."""
    positions: set[int] = set()
    counts: dict[str, int] = {}
    rows: dict[RowKey, list[Cell]] = {}

    def is_wanted(name: str) -> bool:
        hits = selection.find_apis(name)
        positions.update(hits)
        return bool(hits)

    for name, cells in read_rows(file.path, metrics, is_wanted):
        place = counts.get(name, 0)
        counts[name] = place + 1
        rows[name, place] = cells
    return _RankRows(file.rank, rows, frozenset(positions))


# -- the files ------------------------------------------------------------------------------


def _write(table: _MergedTable, output: Path, time_stamp: str, format: str) -> tuple[Path, ...]:
    """Write all files of a table, or none."""
    make_directory(output)
    remove_leftovers(output)
    stem = f"{MERGED_FILE_PREFIX}{{}}{time_stamp}.{format}"
    files: list[AtomicFile] = []

    def create_file(label: str) -> Path:
        files.append(AtomicFile(output / stem.format(label)))
        return files[-1].temporary

    try:
        if format == "xlsx":
            _write_book(create_file(""), table)
        else:
            for number, metric in enumerate(table.metrics):
                _write_lines(create_file(f"{metric.replace(' ', '_')}_"), table, number, format)
        return tuple(file.commit() for file in files)
    except OSError as error:
        raise create_write_error("The merged result", f'"{output}"', error) from None
    finally:
        for file in files:
            file.discard()


def _write_lines(path: Path, table: _MergedTable, metric: int, format: str) -> None:
    reporter = CsvReporter() if format == "csv" else JsonlReporter()
    writer: TableWriter = reporter.open(path, table.headers, len(table.keys))
    try:
        for row in table.rows(metric, 0, len(table.keys)):
            writer.write(row, None)
        writer.close()
    except BaseException:
        with suppress(OSError):
            writer.abandon()
        raise


@dataclass(frozen=True, slots=True)
class _Sheet:
    title: str
    metric: int
    start: int
    stop: int


def _plan_sheets(table: _MergedTable) -> list[_Sheet]:
    """Return a sheet for each metric, or several of equal length if the rows do not fit into one."""
    count = len(table.keys)
    parts = max(1, -(-count // MAX_SHEET_ROWS))
    length = max(1, -(-count // parts))
    return [
        _Sheet(_format_title(metric, f"_part_{part}" if parts > 1 else ""), number, start, min(start + length, count))
        for number, metric in enumerate(table.metrics)
        for part, start in enumerate(range(0, max(1, count), length))
    ]


def _format_title(metric: str, suffix: str) -> str:
    return _NOT_IN_TITLE.sub("_", metric)[: MAX_TITLE_LENGTH - len(suffix)] + suffix


def _write_book(path: Path, table: _MergedTable) -> None:
    """Write the rows into the empty sheets of a workbook made by XlsxWriter."""
    sheets = {f"xl/worksheets/sheet{number}.xml": sheet for number, sheet in enumerate(_plan_sheets(table), 1)}
    with (
        zipfile.ZipFile(_create_empty_book(table, list(sheets.values()))) as empty,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=COMPRESSION_LEVEL) as book,
    ):
        for name in empty.namelist():
            sheet = sheets.get(name)
            if sheet is None:
                book.writestr(create_archive_entry(name), empty.read(name))
                continue
            large = (sheet.stop - sheet.start) * len(table.headers) > MAX_CELLS_WITHOUT_ZIP64
            try:
                with book.open(create_archive_entry(name), "w", force_zip64=large) as file:
                    for part in _iterate_sheet_parts(table, sheet, empty.read(name)):
                        file.write(part)
            except RuntimeError as error:  # raised by zipfile above 2 GiB without zip64
                raise OSError(errno.EFBIG, "a sheet takes more than 2 GiB; write csv instead") from error


def _iterate_sheet_parts(table: _MergedTable, sheet: _Sheet, empty: bytes) -> Iterator[bytes]:
    before, after = SHEET_DATA.split(empty)
    bold, percent = map(int, HEADER_STYLE.findall(empty)[:2])
    yield before + b"<sheetData>" + sheet_row(table.headers, 1, bold, format_excel_text)
    for number, row in enumerate(table.rows(sheet.metric, sheet.start, sheet.stop), 2):
        styles = [percent if type(cell) is Percent else 0 for cell in row]
        yield styled_row(replace_percentages(row), number, styles, format_excel_text)
    yield b"</sheetData>" + after


def _create_empty_book(table: _MergedTable, sheets: Sequence[_Sheet]) -> io.BytesIO:
    """Return a workbook with frozen headers, widths and filters, and without rows."""
    import xlsxwriter

    memory = io.BytesIO()
    book = xlsxwriter.Workbook(memory, {"in_memory": True})
    book.set_properties({"created": CREATION_TIME})
    bold, percent = book.add_format({"bold": True}), book.add_format({"num_format": PERCENT_FORMAT})
    last = len(table.headers) - 1
    width = min(MAX_COLUMN_WIDTH, max((len(name) for name, _ in table.keys), default=0) + 2)
    for sheet in sheets:
        length = sheet.stop - sheet.start
        page = book.add_worksheet(sheet.title)
        page.freeze_panes(1, 1)
        page.set_column(0, 0, max(MIN_COLUMN_WIDTH, width))
        page.set_column(1, last, MIN_COLUMN_WIDTH)
        page.write_blank(0, 0, None, bold)
        page.write_blank(0, 1, None, percent)
        page.write_blank(length, last, None, bold)  # sets the extent of the sheet
        page.autofilter(0, 0, length, last)
    book.close()
    return memory

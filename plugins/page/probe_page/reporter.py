"""The reporter of pages: rows are collected as columns, and the page is written at the end."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import compress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from probe_core.errors import UserError
from probe_core.model import Cell, Colour, Measurement, Mode, Op, Percent, Row
from probe_core.model.report import ReportDraft
from probe_core.plugins.distributions import PLUGINS_VARIABLE
from probe_core.plugins.manager import Manager, PluginWarning
from probe_core.plugins.protocols import OpenComparison
from probe_page.columns import Columns
from probe_page.document import Document, write_page
from probe_page.drawing import CandidateCollector, draw_pictures
from probe_page.language import LANGUAGES
from probe_page.limits import find_limits
from probe_page.ops import Ops
from probe_page.rows import PAGE_COLUMNS, PASS, RowFacts, collect_row_facts, create_page_columns, shorten_name

if TYPE_CHECKING:
    from probe_core.library import Comparison

MAX_UNFILTERED_ROWS = 500_000
"""Number of rows from which on a page leaves out rows that agree or were not judged."""
MAX_PENDING_ROWS = 64
"""Number of rows that are kept as they are: so few that they are still in the processor's cache."""
NAME_HEADERS, STACK_HEADER = ("NPU Name", "Bench Name"), "NPU_Stack_Info"
"""Headers of the columns of names, in which 0 denotes the name of the row, and of the column stored once per op."""


class PageReporter:
    """Reporter for pages.

    Args:
        lang: The language that the page opens in.
    """

    def __init__(self, lang: str = "en") -> None:
        if lang not in LANGUAGES:
            raise UserError(f'A page has no language "{lang}".', "Choose one of these:", list(LANGUAGES))
        self._lang = lang

    def open(self, path: Path, headers: Sequence[str], row_count: int) -> HtmlWriter:
        """Begin a page at ``path``."""
        return HtmlWriter(path, headers, self._lang)

    def open_page(self, path: Path, headers: Sequence[str], opened: OpenComparison) -> HtmlWriter:
        """Begin a page of a comparison at ``path``, with pictures of its tensors."""
        return HtmlWriter(path, headers, self._lang, opened)

    def head(self, comparison: Comparison) -> str:
        """Return the verdict, its causes and the counts of a comparison as HTML, for a notebook."""
        from probe_page.notebook import render_notebook_head

        return render_notebook_head(comparison)

    def line(self, row: int, row_count: int) -> str:
        """Return the number of a row as the page shows it, which is that of the Excel table."""
        return str(row + 2)


class HtmlWriter:
    """A page that is being made; nothing is written before ``close``.

    Rows are collected until there are ``MAX_PENDING_ROWS`` of them. Their columns are then created one by one.
    """

    def __init__(self, path: Path, headers: Sequence[str], lang: str, opened: OpenComparison | None = None) -> None:
        self._file: BinaryIO = path.open("wb")
        self._lang, self._opened = lang, opened
        table_headers = [header for header in headers if header != STACK_HEADER]
        self._columns = Columns([*PAGE_COLUMNS, *table_headers])
        self._table = _PageTable(headers)
        self._ops = Ops()
        self._draft: ReportDraft | None = None
        self._candidates = CandidateCollector()
        self._op_rows: list[tuple[Op, Row]] = []
        self._cells: list[Sequence[Cell]] = []
        self._number = self._left_out = 0

    def look(self, draft: ReportDraft, op: Op, row: Row) -> None:
        """Take in a row, before its cells."""
        self._draft = draft
        self._op_rows.append((op, row))

    def write(self, cells: Sequence[Cell], colour: Colour | None) -> None:
        """Append a row."""
        self._cells.append(cells)
        if len(self._cells) == MAX_PENDING_ROWS:
            self._flush()

    def close(self) -> None:
        """Write the page."""
        self._flush()
        report = self._draft.build() if self._draft is not None else None
        row_pictures, limits = dict[int, dict[str, Any]](), dict[str, str]()
        if report is not None:
            if self._opened is not None:
                row_pictures = draw_pictures(report, self._opened, self._candidates)
            context = click.get_current_context(silent=True)
            manager = context and context.find_object(Manager)
            limits = find_limits(manager or _load_manager(os.environ.get(PLUGINS_VARIABLE)), report.mode)
        document = Document(
            self._lang, report, self._columns, self._ops, self._table.percent, self._left_out, row_pictures, limits
        )
        try:
            write_page(self._file, document)
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Close the file without completing it."""
        with suppress(OSError):
            self._file.close()

    def _flush(self) -> None:
        """Turn the rows that were kept into a block."""
        op_rows, cells, first = self._op_rows, self._cells, self._number + 2
        self._op_rows, self._cells = [], []
        self._number += len(cells)
        numbers: Sequence[int] = range(first, first + len(cells))
        if not cells:
            return
        if not op_rows:  # a table without rows of a comparison
            blank = [""] * len(cells)
            names = [shorten_name(str(row[0]), "") for row in cells]
            none = [-1] * len(cells)
            page_columns: list[Sequence[Cell]] = [numbers, none, none, blank, blank, blank, names]
            self._columns.add([*page_columns, *self._table.iterate_columns(cells, (), None)])
            return
        ops = [op for op, _ in op_rows]
        rows = [row for _, row in op_rows]
        row_facts = collect_row_facts(rows)
        places: Sequence[tuple[int, str]] = self._ops.add(ops, rows, row_facts)
        if self._draft is not None and self._draft.mode is Mode.TENSOR:
            self._candidates.add(first, ops, rows, row_facts)
        if self._number > MAX_UNFILTERED_ROWS:
            is_included = [
                first + n <= MAX_UNFILTERED_ROWS + 1 or level > PASS for n, level in enumerate(row_facts.levels)
            ]
            self._left_out += len(is_included) - sum(is_included)
            numbers, places = list(compress(numbers, is_included)), list(compress(places, is_included))
            rows, row_facts = list(compress(rows, is_included)), row_facts.select(is_included)
            cells = list(compress(cells, is_included))
        if numbers:
            page_columns = create_page_columns(numbers, places, row_facts)
            self._columns.add([*page_columns, *self._table.iterate_columns(cells, rows, row_facts)])


@lru_cache(maxsize=1)
def _load_manager(_: str | None) -> Manager:
    """Return the plugins of this environment; to load them takes a fifth of the time of a small page."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # the command has warned
        return Manager()


class _PageTable:
    """The columns of the table, of which a page keeps the numbers of measurements with all digits.

    Attributes:
        percent: The headers of columns whose numbers the table shows as percentages.
    """

    def __init__(self, headers: Sequence[str]) -> None:
        self.percent: set[str] = set()
        self._headers = headers
        self._sources: dict[int, str] | None = None

    def iterate_columns(
        self, cells: Sequence[Sequence[Cell]], rows: Sequence[Row], row_facts: RowFacts | None
    ) -> Iterator[Sequence[Cell]]:
        """Yield each column but the stacks, with 0 for a row's own name.

        Args:
            cells: The cells of each row.
            rows: The rows; empty for a table without.
            row_facts: What the page keeps of them; None for a table without.
        """
        if self._sources is None:
            self._sources = self._find_sources(cells, rows)
        measured = _collect_measurements(rows, self._sources or {})
        for place, (header, column) in enumerate(zip(self._headers, zip(*cells))):
            shown: Sequence[Cell] = column
            if header == STACK_HEADER:
                continue
            if header in NAME_HEADERS and row_facts is not None:
                shown = [0 if cell == name else cell for cell, name in zip(shown, row_facts.names)]
            elif place in measured:
                shown = self._restore_digits(header, shown, measured[place])
            yield shown

    def _restore_digits(self, header: str, cells: Sequence[Cell], measured: Sequence[Measurement]) -> Sequence[Cell]:
        exact: Sequence[Cell]
        exact, reasons = zip(*measured)
        if set(map(type, exact)) != {float} or any(reasons) or not math.isfinite(sum(exact)):
            exact = [
                value if reason is None and type(value) is float and value - value == 0 else cell
                for (value, reason), cell in zip(measured, cells)
            ]
        if header not in self.percent and Percent in set(map(type, cells)):
            self.percent.add(header)
        return exact

    def _find_sources(self, cells: Sequence[Sequence[Cell]], rows: Sequence[Row]) -> dict[int, str] | None:
        """Return the keys of the measurements behind the columns that round, by place; None without any."""
        first = next((row.measurements for row in rows if row.measurements), None)
        if first is None:
            return None
        by_header: dict[str, str] = {}
        for key in first:
            metric, _, column = key.partition(".")
            by_header.setdefault(column, key)
            by_header[f"{metric}: {column}"] = key
        sources: dict[int, str] = {}
        for place, header in enumerate(self._headers):
            if (key := by_header.get(header, "")) and not _is_whole(
                (row.measurements[key].value, shown[place]) for row, shown in zip(rows, cells)
            ):
                sources[place] = key
        return sources


def _collect_measurements(rows: Sequence[Row], sources: Mapping[int, str]) -> dict[int, Sequence[Measurement]]:
    """Return the measurements of rows by the place of their column."""
    if len(sources) < 2:
        return {place: [row.measurements[key] for row in rows] for place, key in sources.items()}
    take = itemgetter(*sources.values())
    return dict(zip(sources, zip(*[take(row.measurements) for row in rows])))


def _is_whole(pairs: Iterable[tuple[object, Cell]]) -> bool:
    """Return True if the cells of a column are its measurements themselves rather than rounded ones."""
    for value, cell in pairs:
        if type(value) is float and value - value == 0:
            return cell is value
    return False

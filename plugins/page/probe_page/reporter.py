"""The reporter of pages: rows are collected as columns, and the page is written at the end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from probe_core.errors import UserError
from probe_core.model import Cell, Colour, Op, Row
from probe_core.model.report import Report
from probe_page.columns import Columns
from probe_page.document import Document, write_page
from probe_page.language import LANGUAGES
from probe_page.notebook import notebook_head
from probe_page.ops import Ops
from probe_page.rows import OWN, PASS, Looked, own_cells

if TYPE_CHECKING:
    from probe_core.library import Comparison

LARGEST = 500_000
"""Number of rows from which on a page leaves out rows that agree or were not judged."""
NAMES, STACK = ("NPU Name", "Bench Name"), "NPU_Stack_Info"
"""Headers of the columns of names, in which 0 stands for the name of the row, and of a column that is kept
once an op."""


class PageReporter:
    """Reporter for pages.

    Args:
        lang: The language that the page opens in.
    """

    def __init__(self, lang: str = "en") -> None:
        if lang not in LANGUAGES:
            raise UserError(f'A page has no language "{lang}".', "Choose one of these:", list(LANGUAGES))
        self._lang = lang

    def open(self, path: Path, headers: Sequence[str], row_count: int) -> PageWriter:
        """Begin a page at ``path``."""
        return PageWriter(path, headers, self._lang)

    def head(self, comparison: Comparison) -> str:
        """Return the verdict, its causes and the counts of a comparison as HTML, for a notebook."""
        return notebook_head(comparison)

    def line(self, row: int, row_count: int) -> str:
        """Return the number of a row as the page shows it, which is that of the Excel table."""
        return str(row + 2)


class PageWriter:
    """A page that is being made; nothing is written before ``close``."""

    def __init__(self, path: Path, headers: Sequence[str], lang: str) -> None:
        self._file: BinaryIO = path.open("wb")
        self._lang = lang
        self._headers = tuple(headers)
        kept = [place for place, header in enumerate(headers) if header != STACK]
        self._pick = itemgetter(*kept) if len(kept) > 1 else tuple
        self._rows = Columns([*OWN, *(headers[place] for place in kept)])
        self._table = _Table(self._headers)
        self._ops = Ops()
        self._report: Report | None = None
        self._looked: Looked | None = None
        self._number = self._left_out = 0

    def look(self, report: Report, op: Op, row: Row) -> None:
        """Take in a row, before its cells."""
        self._report = report
        self._looked = looked = Looked.of(row)
        self._ops.add(op, row, looked)
        if row.measurements and not self._table.sources:
            self._table.find_sources(row)

    def write(self, cells: Sequence[Cell], colour: Colour | None) -> None:
        """Append a row."""
        looked, self._looked = self._looked, None
        self._number += 1
        if looked is None:
            own = own_cells(self._number + 1, -1, None, str(cells[0]), "")
            self._rows.add(own + self._pick(cells))
            return
        if self._number > LARGEST and looked.level <= PASS:
            self._left_out += 1
            return
        own = own_cells(self._number + 1, self._ops.count - 1, looked, looked.name, self._ops.key)
        self._rows.add(own + self._pick(self._table.exact(cells, looked)))

    def close(self) -> None:
        """Write the page."""
        document = Document(
            self._lang, self._report, self._rows, self._ops, self._table.percent, self._left_out
        )
        try:
            write_page(self._file, document)
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Close the file without completing it."""
        with suppress(OSError):
            self._file.close()


@dataclass(slots=True)
class _Table:
    """The columns of the table that show measurements, whose numbers a page keeps with all digits.

    Attributes:
        sources: The place of each such column, and the key of its measurements.
        percent: The headers of columns whose numbers the table shows as percentages.
        names: The places of the columns of names.
    """

    headers: Sequence[str]
    sources: list[tuple[int, str]] = field(default_factory=list)
    percent: set[str] = field(default_factory=set)
    names: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.names = [place for place, header in enumerate(self.headers) if header in NAMES]

    def find_sources(self, row: Row) -> None:
        """Find the measurements behind the columns, from any row that was measured."""
        by_header: dict[str, str] = {}
        for key in row.measurements:
            metric, _, column = key.partition(".")
            by_header.setdefault(column, key)
            by_header[f"{metric}: {column}"] = key
        self.sources = [
            (place, by_header[header]) for place, header in enumerate(self.headers) if header in by_header
        ]

    def exact(self, cells: Sequence[Cell], looked: Looked) -> Sequence[Cell]:
        """Return cells with finite floats in place of rounded ones, and 0 for the row's own name."""
        shown = list(cells)
        for place in self.names:
            if shown[place] == looked.name:
                shown[place] = 0
        measurements = looked.measurements
        for place, source in self.sources:
            value, reason = measurements[source]
            if type(value) is float and reason is None and value - value == 0:
                if type(shown[place]) is str:
                    self.percent.add(self.headers[place])
                shown[place] = value
        return shown

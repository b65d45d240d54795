"""Interfaces of reporters and highlighters, and of the options of ``merge_result``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from probe_core.model import Cell, Colour, Mark, Op, Row
    from probe_core.model.answers import Answer
    from probe_core.model.batches import RowBatch
    from probe_core.model.report import ReportDraft
    from probe_core.plugins.manager import Manager
    from probe_core.plugins.protocols import OpenComparison
    from probe_core.store.layout import RunPair
    from probe_reporters.table import CellColumn, Table


class MergeOption(Protocol):
    """A function that does extra work in ``merge_result`` for the options of a plugin."""

    def __call__(self, manager: Manager, output: Path, format: str, values: Mapping[str, Any]) -> int:
        """Do the work and return the exit code."""


class Highlighter(Protocol):
    """A rule that marks rows of an op by looking at all of them."""

    def mark(self, rows: Sequence[Row]) -> Mapping[int, Mark]:
        """Return the mark of each marked row, by its position in ``rows``."""


class TableWriter(Protocol):
    """A result file that is being written."""

    def write(self, cells: Sequence[Cell], colour: Colour | None) -> None:
        """Append one row."""

    def close(self) -> None:
        """Complete the file at the path it was opened for."""

    def abandon(self) -> None:
        """Close the file without completing it; the caller removes it."""


class AnswerWriter(TableWriter, Protocol):
    """A result file that holds the answer as well (``ReporterSpec.answers``)."""

    def answer(self, answer: Answer) -> None:
        """Receive the answer, after the last row and before ``close``."""


@runtime_checkable
class BatchTableWriter(Protocol):
    """A result file that is written batch by batch."""

    def write_batch(self, columns: Sequence[CellColumn], batch: RowBatch) -> None:
        """Append the rows of a batch, whose cells are ``columns``."""


class PageWriter(TableWriter, Protocol):
    """A page, which shows more than the cells of a table."""

    def look(self, draft: ReportDraft, op: Op, row: Row) -> None:
        """Receive a row before its cells; ``draft`` is complete at ``close``."""


class Reporter(Protocol):
    """An output format for tables."""

    def open(self, path: Path, headers: Sequence[str], row_count: int) -> TableWriter:
        """Begin a table of ``row_count`` rows at ``path``."""

    def line(self, row: int, row_count: int) -> str:
        """Return the position of a row, counted from 0, in the finished file, for people."""


@runtime_checkable
class TypedTableReporter(Protocol):
    """A reporter whose files hold the table of a comparison with the types of its columns."""

    def open_table(self, path: Path, table: Table, pair: RunPair) -> TableWriter | BatchTableWriter:
        """Begin the table of two record files at ``path``."""


@runtime_checkable
class PageReporter(Protocol):
    """A reporter of pages, whose writers may read both runs until they are closed."""

    def open_page(self, path: Path, headers: Sequence[str], opened: OpenComparison) -> PageWriter:
        """Begin a page on a comparison at ``path``."""

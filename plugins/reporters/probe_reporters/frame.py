"""The rows of a comparison as the columns of a data frame (docs/python.md#data-frames)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from probe_core.model import Cell, Level, Percent
from probe_core.model.batches import RowBatch
from probe_core.model.columns import BIG_INTEGER, FLOAT, INTEGER, MAX_EXACT_INTEGER, Array, convert_to_float
from probe_core.model.rows import Measurement
from probe_core.store.frames import FRAMEWORK_FRAMES
from probe_core.store.layout import RunPair
from probe_reporters.spreadsheet_text import replace_surrogates
from probe_reporters.table import STATISTICS, CellColumn, Table

DISTANCE_POLICY = "first_difference"
"""The policy whose distances a frame shows; without it, those of the table's own policy."""
_LEVEL_NAMES = np.array([level.value for level in Level], object)


class ColumnType(Enum):
    """Types of the columns of a frame, with the dtypes of their arrays.

    Columns of texts and booleans contain None in rows without a value; columns of numbers contain nan.
    """

    TEXT = "text"
    NUMBER = "float64"
    INTEGER = "int64"
    BOOLEAN = "boolean"

    @property
    def dtype(self) -> Any:
        """The dtype of the column's array."""
        return object if self in (ColumnType.TEXT, ColumnType.BOOLEAN) else self.value

    def create_missing(self, count: int) -> Array:
        """Return a column of ``count`` rows without values."""
        return np.full(count, {ColumnType.NUMBER: np.nan, ColumnType.INTEGER: 0}.get(self), self.dtype)


LEADING_COLUMNS = {"step": ColumnType.TEXT, "rank": ColumnType.INTEGER, "op": ColumnType.TEXT, "level": ColumnType.TEXT}
"""Columns before those of the table."""
TRAILING_COLUMNS = {
    "distance": ColumnType.NUMBER, "rounding bound": ColumnType.NUMBER, "module": ColumnType.TEXT,
    "source line": ColumnType.TEXT,
}  # fmt: skip
"""Columns after those of the table."""


def format_text_header(header: str) -> str:
    """Return the header of the column of texts that belongs to a column of numbers."""
    return f"{header} (text)"


def find_column_types(table: Table) -> dict[str, ColumnType]:
    """Return the columns of the frame of a table, each column of numbers followed by one of texts."""
    kinds = {**LEADING_COLUMNS}
    for header, (source, _) in zip(table.headers, table.sources):
        kinds[header] = _find_column_type(source)
        if kinds[header] is ColumnType.NUMBER:
            kinds[format_text_header(header)] = ColumnType.TEXT
    return {**kinds, **{header: kind for header, kind in TRAILING_COLUMNS.items() if header not in kinds}}


def _find_column_type(source: str) -> ColumnType:
    part, _, name = source.partition(".")
    if part == "row":
        return ColumnType.BOOLEAN if name == "consistent" else ColumnType.TEXT
    if part in ("target", "golden") and name not in STATISTICS:
        return ColumnType.BOOLEAN if name == "requires_grad" else ColumnType.TEXT
    return ColumnType.NUMBER


class FrameColumns:
    """The columns of a data frame, which grows batch by batch.

    Args:
        kinds: The columns that the frame has before the first batch.

    Attributes:
        kinds: The columns by their headers, in order.
        row_count: The number of rows.
    """

    def __init__(self, kinds: dict[str, ColumnType] | None = None) -> None:
        self.kinds = {**(kinds or LEADING_COLUMNS)}
        self.row_count = 0
        self._chunks: list[tuple[int, dict[str, Array]]] = []

    def add(self, pair: RunPair, table: Table, batch: RowBatch) -> None:
        """Append the rows of a judged batch."""
        self.add_cells(pair, table, table.create_columns(batch, all_digits=True), batch)

    def add_cells(self, pair: RunPair, table: Table, cells: Sequence[CellColumn], batch: RowBatch) -> None:
        """Append the rows of a judged batch, whose cells with all digits are known."""
        self.kinds.update(find_column_types(table))
        self._chunks.append((len(batch), _create_columns(pair, table, cells, batch)))
        self.row_count += len(batch)

    def columns(self, *, all_texts: bool = False) -> dict[str, Array]:
        """Return the columns by their headers.

        Args:
            all_texts: True to include columns of texts that are empty in all rows.
        """
        are_optional = {format_text_header(header) for header, kind in self.kinds.items() if kind is ColumnType.NUMBER}
        columns: dict[str, Array] = {}
        for header, kind in self.kinds.items():
            has_values = any(header in chunk for _, chunk in self._chunks)
            if has_values or all_texts or header not in are_optional:
                filled = [chunk.get(header, kind.create_missing(count)) for count, chunk in self._chunks]
                columns[header] = np.concatenate(filled) if filled else kind.create_missing(0)
        return columns

    def clear(self) -> None:
        """Remove all rows."""
        self._chunks.clear()
        self.row_count = 0


def _create_columns(pair: RunPair, table: Table, cells: Sequence[CellColumn], batch: RowBatch) -> dict[str, Array]:
    """Return the columns of the rows of a batch; columns of texts only if a row has one."""
    sizes = np.diff(batch.starts)
    verdicts = batch.results.further.get(DISTANCE_POLICY, batch.verdicts)
    drifts = np.full((len(batch), 3), np.nan) if verdicts.drifts is None else verdicts.drifts
    difference, scale, bound = drifts[:, 0], drifts[:, 1], drifts[:, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.where(difference == 0, 0.0, difference / scale)
    modules = [next(iter(batch.op(number).ancestors), "") for number in range(len(batch.ops))]
    lines = [""] * len(batch.ops)
    for number in batch.stack_lines:
        lines[number] = _find_source_line(batch.stack(number) or ())
    columns = {
        "step": np.full(len(batch), pair.part, object),
        "rank": np.full(len(batch), pair.rank, np.int64),
        "op": np.repeat(_create_text_array(batch.ops), sizes),
        "level": _LEVEL_NAMES[batch.verdicts.levels],
        "distance": distance,
        "rounding bound": bound,
        "module": np.repeat(_create_text_array(modules), sizes),
        "source line": np.repeat(_create_text_array(lines), sizes),
    }
    for header, (source, _), column in zip(table.headers, table.sources, cells):
        kind = _find_column_type(source)
        if kind is ColumnType.NUMBER:
            columns[header], has_text = _extract_numbers(batch, source, column)
            if has_text.any():
                texts = _create_text_array([None, *map(_format_text, column.texts)])
                columns[format_text_header(header)] = texts[np.where(has_text, column.codes, -1) + 1]
        elif kind is ColumnType.BOOLEAN:
            columns[header] = _extract_booleans(batch, source)
        else:
            columns[header] = _create_text_array(column.texts)[column.codes]
    return columns


def _extract_numbers(batch: RowBatch, source: str, column: CellColumn) -> tuple[Array, Array]:
    """Return the numbers of a column, nan for rows without one, and the rows whose cell may be a text."""
    part, _, name = source.partition(".")
    if part in ("target", "golden"):
        side, place = batch.target if part == "target" else batch.golden, STATISTICS.index(name)
        types, numbers = side.column("types")[:, place], side.column("numbers")[:, place]
        is_number = side.is_present & ((types == FLOAT) | (types == INTEGER) | (types == BIG_INTEGER))
        values, is_float = np.where(is_number, numbers, np.nan), types == FLOAT
    else:
        measured = batch.results.measurements[source]
        is_float = measured.codes == 0
        other_numbers = np.array([_convert_measurement(measurement) for measurement in measured.others])
        values = np.where(is_float, measured.numbers, other_numbers[measured.codes])
    return values, (column.codes >= 0) & ~(is_float & np.isinf(values))


def _extract_booleans(batch: RowBatch, source: str) -> Array:
    """Return a column of True and False, None where a row has neither."""
    part, _, name = source.partition(".")
    if name == "consistent":
        codes = np.where(batch.is_matched, np.where(batch.requires_grad_differs, 0, 1), -1)
    else:
        side = batch.target if part == "target" else batch.golden
        codes = np.where(side.is_present, side.column("grad"), -1)
    booleans: Array = np.array([None, False, True], object)[codes + 1]
    return booleans


def _convert_measurement(measurement: Measurement) -> float:
    value, reason = measurement
    return convert_to_float(value) if reason is None and isinstance(value, (int, float)) else np.nan


def _format_text(cell: Cell) -> str | None:
    """Return the text of a cell; None if it is a number that float64 holds."""
    is_number = isinstance(cell, (int, float)) and abs(cell) < MAX_EXACT_INTEGER
    return None if cell is None or is_number or isinstance(cell, Percent) else str(cell)


def _create_text_array(texts: Iterable[Cell]) -> Array:
    """Return texts as an array, with U+FFFD for unpaired surrogates, which cannot be encoded."""
    listed = [text if text is None else str(text) for text in texts]
    if not "".join(filter(None, listed)).isascii():
        listed = [text if text is None else replace_surrogates(text) for text in listed]
    return np.array(listed, object)


def _find_source_line(stack: Sequence[str]) -> str:
    """Return the innermost frame outside framework and recorder; empty if there is none."""
    frames = (frame for frame in stack if not any(part in frame for part in FRAMEWORK_FRAMES))
    return " ".join(next(frames, "").split())


def create_columns_from_cells(
    headers: Sequence[str], rows: Sequence[Sequence[Cell]]
) -> tuple[dict[str, Array], dict[str, ColumnType]]:
    """Return the columns of a few rows of cells, and their kinds.

    A column with a number becomes a column of numbers, followed by a column of texts if a cell contains a text.
    """
    columns: dict[str, Array] = {}
    kinds: dict[str, ColumnType] = {}
    for place, header in enumerate(headers):
        cells = [row[place] for row in rows]
        values = [cell for cell in cells if cell is not None]
        if values and all(isinstance(cell, bool) for cell in values):
            columns[header], kinds[header] = np.array(cells, object), ColumnType.BOOLEAN
            continue
        numbers = np.array([_convert_cell(cell) for cell in cells])
        texts = [_format_text(cell) for cell in cells]
        if np.isnan(numbers).all():
            columns[header], kinds[header] = _create_text_array(texts), ColumnType.TEXT
            continue
        columns[header], kinds[header] = numbers, ColumnType.NUMBER
        if any(text is not None for text in texts):
            columns[format_text_header(header)], kinds[format_text_header(header)] = (
                _create_text_array(texts),
                ColumnType.TEXT,
            )
    return columns, kinds


def _convert_cell(cell: Cell) -> float:
    if isinstance(cell, Percent):
        return cell.ratio
    return convert_to_float(cell) if isinstance(cell, (int, float)) else np.nan

"""Rows of cells as text, by compiled code if it was built: lines of csv and rows of a worksheet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probe_core import engine
from probe_core.model import Cell
from probe_core.model.columns import Array
from probe_reporters import plain_lines
from probe_reporters.table import CellColumn

_lines = engine.import_compiled("probe_reporters._lines") or plain_lines

csv_line = _lines.csv_line
_sheet_rows = getattr(_lines, "sheet_rows", plain_lines.sheet_rows)
_csv_rows = getattr(_lines, "csv_rows", plain_lines.csv_rows)  # a build of an older source lacks it
sheet_row = _lines.sheet_row
styled_row = getattr(_lines, "styled_row", plain_lines.styled_row)


def format_csv_rows(columns: Sequence[CellColumn], count: int, prepare: plain_lines.Prepare) -> bytes:
    """Return the lines of csv of ``count`` rows, as ``csv.writer`` writes them."""
    lines: bytes = _csv_rows([*map(_convert_column, columns)], count, prepare)
    return lines


def format_sheet_rows(
    columns: Sequence[CellColumn],
    rows: range,
    first: int,
    styles: list[Sequence[int]],
    colors: bytes,
    prepare: plain_lines.Prepare,
) -> bytes:
    """Return the ``<row>`` elements of some rows; see ``plain_lines.sheet_rows``. Percentages are ratios."""
    sources = [*map(_convert_column, columns)]
    text: bytes = _sheet_rows(sources, rows.start, rows.stop, first, styles, colors, prepare)
    return text


def _convert_column(column: CellColumn) -> tuple[Array, Sequence[Cell], Array | None]:
    numbers = column.numbers
    return (
        np.ascontiguousarray(column.codes, np.int32),
        column.texts,
        None if numbers is None else np.ascontiguousarray(numbers, np.float64),
    )

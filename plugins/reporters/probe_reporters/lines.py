"""Rows of cells as text, by compiled code if it was built: lines of csv and rows of a worksheet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probe_core import engine
from probe_core.flow.table import CellColumn
from probe_reporters import plain_lines

_lines = engine.compiled("probe_reporters._lines") or plain_lines

csv_line = _lines.csv_line
_csv_rows = getattr(_lines, "csv_rows", plain_lines.csv_rows)  # a build of an older source lacks it
sheet_row = _lines.sheet_row
styled_row = getattr(_lines, "styled_row", plain_lines.styled_row)


def csv_rows(columns: Sequence[CellColumn], count: int, prepare: plain_lines.Prepare) -> bytes:
    """Return the lines of csv of ``count`` rows, as ``csv.writer`` writes them."""
    sources = [
        (
            np.ascontiguousarray(column.codes, np.int32),
            column.texts,
            None if column.numbers is None else np.ascontiguousarray(column.numbers, np.float64),
        )
        for column in columns
    ]
    lines: bytes = _csv_rows(sources, count, prepare)
    return lines

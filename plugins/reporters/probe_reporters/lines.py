"""Rows of cells as text, by compiled code if it was built: lines of csv and rows of a worksheet."""

from __future__ import annotations

from probe_core import engine
from probe_reporters import plain_lines

_lines = engine.compiled("probe_reporters._lines") or plain_lines

csv_line = _lines.csv_line
sheet_row = _lines.sheet_row
styled_row = getattr(_lines, "styled_row", plain_lines.styled_row)  # a build of an older source lacks it

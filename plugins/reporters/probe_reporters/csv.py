"""Comma separated values in UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from probe_core.model import Cell, Colour
from probe_core.model.batches import RowBatch
from probe_reporters.lines import csv_line, format_csv_rows
from probe_reporters.spreadsheet_text import neutralise
from probe_reporters.table import CellColumn

BUFFER_BYTES = 1 << 20


class CsvReporter:
    """Reporter for csv files, which do not show colours.

    Args:
        bom: True to begin with a byte order mark, which Excel needs to recognize UTF-8.
    """

    def __init__(self, bom: bool = False) -> None:
        self._head = codecs.BOM_UTF8 if bom else b""

    def open(self, path: Path, headers: Sequence[str], row_count: int) -> CsvWriter:
        """Begin a table at ``path``."""
        return CsvWriter(path, headers, self._head)

    def line(self, row: int, row_count: int) -> str:
        """Return the line number of a row; the header is line 1."""
        return str(row + 2)


class CsvWriter:
    """A csv file that is being written."""

    def __init__(self, path: Path, headers: Sequence[str], head: bytes = b"") -> None:
        self._file = path.open("wb", BUFFER_BYTES)
        self._file.write(head)
        self._file.write(csv_line(headers, neutralise))

    def write(self, cells: Sequence[Cell], colour: Colour | None) -> None:
        """Append one row."""
        self._file.write(csv_line(cells, neutralise))

    def write_batch(self, columns: Sequence[CellColumn], batch: RowBatch) -> None:
        """Append the rows of a batch, given as columns."""
        self._file.write(format_csv_rows(columns, len(batch), neutralise))

    def close(self) -> None:
        """Complete the file."""
        self._file.close()

    def abandon(self) -> None:
        """Close the file without completing it."""
        with suppress(OSError):  # the buffer cannot be written to a full disk
            self._file.close()

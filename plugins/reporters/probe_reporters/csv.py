"""Comma separated values, UTF-8 without a byte order mark, as every csv reader takes it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from probe_core.model import Cell, Colour
from probe_reporters.text import neutralise


class CsvReporter:
    """Writes tables as csv; colours are not shown."""

    def open(self, path: Path, headers: Sequence[str], row_count: int) -> CsvWriter:
        """Begin a table at ``path``."""
        return CsvWriter(path, headers)

    def line(self, row: int, row_count: int) -> str:
        """The header is line 1."""
        return str(row + 2)


class CsvWriter:
    """One csv file being written."""

    def __init__(self, path: Path, headers: Sequence[str]) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._csv = csv.writer(self._file)
        self._csv.writerow([neutralise(header) for header in headers])

    def write(self, cells: Sequence[Cell], colour: Colour | None) -> None:
        """Append one row."""
        self._csv.writerow([neutralise(cell) if isinstance(cell, str) else cell for cell in cells])

    def close(self) -> None:
        """Complete the file."""
        self._file.close()

    def abandon(self) -> None:
        """Let go of the file."""
        self._file.close()

"""JSON lines: an object per row, with numbers as numbers, valid JSON throughout."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from probe_core.model import Cell, Colour
from probe_core.safe_text import format_safe_json
from probe_reporters.spreadsheet_text import replace_surrogates


class JsonlReporter:
    """Reporter for JSON lines; marked rows have a member ``highlight``."""

    def open(self, path: Path, headers: Sequence[str], row_count: int) -> JsonlWriter:
        """Begin a table at ``path``."""
        return JsonlWriter(path, headers)

    def line(self, row: int, row_count: int) -> str:
        """Return the line number of a row; there is no header."""
        return str(row + 1)


class JsonlWriter:
    """A file of JSON lines that is being written."""

    def __init__(self, path: Path, headers: Sequence[str]) -> None:
        self._headers = headers
        self._file = path.open("w", encoding="utf-8", newline="\n")

    def write(self, cells: Sequence[Cell], colour: Colour | None) -> None:
        """Append one row."""
        row = {
            header: replace_surrogates(cell) if isinstance(cell, str) else cell
            for header, cell in zip(self._headers, cells)
        }
        if colour is not None:
            row["highlight"] = colour.value
        self._file.write(format_safe_json(row) + "\n")

    def close(self) -> None:
        """Complete the file."""
        self._file.close()

    def abandon(self) -> None:
        """Close the file without completing it."""
        with suppress(OSError):  # the buffer cannot be written to a full disk
            self._file.close()

"""JSON lines: an object a row, numbers as numbers, valid JSON throughout."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from probe_core.model import Cell, Colour
from probe_core.safe_text import safe_json
from probe_core.spreadsheet_text import clean


class JsonlReporter:
    """Writes tables as JSON lines; a marked row has a member ``highlight``."""

    def open(self, path: Path, headers: Sequence[str], row_count: int) -> JsonlWriter:
        """Begin a table at ``path``."""
        return JsonlWriter(path, headers)

    def line(self, row: int, row_count: int) -> str:
        """There is no header line."""
        return str(row + 1)


class JsonlWriter:
    """One file of JSON lines being written."""

    def __init__(self, path: Path, headers: Sequence[str]) -> None:
        self._headers = headers
        self._file = path.open("w", encoding="utf-8", newline="\n")

    def write(self, cells: Sequence[Cell], colour: Colour | None) -> None:
        """Append one row."""
        row = {
            header: clean(cell) if isinstance(cell, str) else cell
            for header, cell in zip(self._headers, cells)
        }
        if colour is not None:
            row["highlight"] = colour.value
        self._file.write(safe_json(row) + "\n")

    def close(self) -> None:
        """Complete the file."""
        self._file.close()

    def abandon(self) -> None:
        """Let go of the file."""
        with suppress(OSError):  # a full disk does not take what is left in the buffer either
            self._file.close()

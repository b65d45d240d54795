"""Parquet files and data frames, whose columns are typed (docs/python.md#data-frames)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from probe_core.model import Cell, Colour
from probe_core.model.batches import RowBatch
from probe_core.store.layout import RunPair
from probe_reporters.frame import FrameColumns, create_columns_from_cells, find_column_types
from probe_reporters.frame_libraries import (
    create_arrow_schema,
    create_arrow_table,
    create_data_frame,
    import_frame_library,
    import_pyarrow,
)
from probe_reporters.table import CellColumn, Table

ROW_GROUP_ROWS = 1 << 16
"""Number of rows after which a row group is written."""
Batches = Iterable[tuple[RunPair, Table, RowBatch]]
"""Judged batches with the pair and the table that they belong to."""


class ParquetReporter:
    """Reporter for Parquet files, and source of data frames with the same columns."""

    def open(self, path: Path, headers: Sequence[str], row_count: int) -> CellsWriter:
        """Begin a table at ``path`` whose columns are typed by their cells, such as the summary of all ranks.

        Raises:
            UserError: pyarrow is not installed.
        """
        return CellsWriter(path, headers)

    def open_table(self, path: Path, table: Table, pair: RunPair) -> BatchWriter:
        """Begin the table of a pair at ``path``, whose columns depend only on the table.

        Raises:
            UserError: pyarrow is not installed.
        """
        return BatchWriter(path, table, pair)

    def line(self, row: int, row_count: int) -> str:
        """Return the number of a row, counted from 1."""
        return str(row + 1)

    def data_frame(self, batches: Batches) -> Any:
        """Return a data frame of pandas or, if that is not installed, of polars.

        Raises:
            UserError: Neither of them is installed; no batch is read.
        """
        library, frame = import_frame_library(), _collect_frame(batches)
        return create_data_frame(library, frame.columns(), frame.kinds)

    def arrow_table(self, batches: Batches) -> Any:
        """Return a ``pyarrow.Table``.

        Raises:
            UserError: pyarrow is not installed; no batch is read.
        """
        import_pyarrow()
        frame = _collect_frame(batches)
        return create_arrow_table(frame.columns(), frame.kinds)


def _collect_frame(batches: Batches) -> FrameColumns:
    frame = FrameColumns()
    for pair, table, batch in batches:
        frame.add(pair, table, batch)
    return frame


class BatchWriter:
    """The Parquet file of a comparison that is being written; it always has the columns of texts."""

    def __init__(self, path: Path, table: Table, pair: RunPair) -> None:
        self._table, self._pair = table, pair
        self._frame = FrameColumns(find_column_types(table))
        parquet = import_pyarrow("pyarrow.parquet")
        self._file = parquet.ParquetWriter(path, create_arrow_schema(self._frame.kinds))

    def write_batch(self, columns: Sequence[CellColumn], batch: RowBatch) -> None:
        """Append the rows of a batch, given as columns."""
        self._frame.add_cells(self._pair, self._table, columns, batch)
        if self._frame.row_count >= ROW_GROUP_ROWS:
            self._write_row_group()

    def _write_row_group(self) -> None:
        self._file.write_table(create_arrow_table(self._frame.columns(all_texts=True), self._frame.kinds))
        self._frame.clear()

    def close(self) -> None:
        """Complete the file."""
        if self._frame.row_count:
            self._write_row_group()
        self._file.close()

    def abandon(self) -> None:
        """Close the file without completing it."""
        with suppress(OSError):  # the end of the file cannot be written to a full disk
            self._file.close()


class CellsWriter:
    """A Parquet file of a few rows, which is written when it is closed."""

    def __init__(self, path: Path, headers: Sequence[str]) -> None:
        self._parquet = import_pyarrow("pyarrow.parquet")
        self._path, self._headers = path, headers
        self._rows: list[Sequence[Cell]] = []

    def write(self, cells: Sequence[Cell], colour: Colour | None) -> None:
        """Append one row."""
        self._rows.append(cells)

    def close(self) -> None:
        """Write the file."""
        columns, kinds = create_columns_from_cells(self._headers, self._rows)
        self._parquet.write_table(create_arrow_table(columns, kinds), self._path)

    def abandon(self) -> None:
        """Write nothing."""

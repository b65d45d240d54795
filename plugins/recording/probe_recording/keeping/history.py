"""The sizes of all quantities of the last steps, from which each has its band."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from probe_recording.keeping.band import Values
from probe_recording.keeping.readings import QuantityName, QuantityReading
from probe_recording.keeping.step_memory import Rows

INITIAL_ROW_COUNT = 64


class History:
    """A table of sizes with a row for each quantity and a column for each of the last steps.

    Args:
        step_count: Number of steps that are held.
        memory: Bytes that the table may take; quantities beyond are not observed.

    Attributes:
        left_out: Number of quantities that found no place.
    """

    def __init__(self, step_count: int, memory: int) -> None:
        self._step_count = step_count
        self._max_rows = memory // (step_count * np.dtype(np.float64).itemsize)
        self._rows: dict[QuantityName, int] = {}
        self._names: list[QuantityName] = []
        self._left_out: set[QuantityName] = set()
        self._sizes: NDArray[np.float64] = np.full((0, step_count), np.nan)
        self._column_count = 0

    @property
    def left_out(self) -> int:
        """Number of quantities that found no place; counted up to the number of those that did."""
        return len(self._left_out)

    @property
    def byte_count(self) -> int:
        """Bytes of the table."""
        return self._sizes.nbytes

    def add(self, readings: Sequence[QuantityReading]) -> tuple[int, Rows]:
        """Add the quantities of a step.

        Returns:
            The number of the step's column, and the row of each reading that has a place, in their order.
        """
        row_by_name = self._rows
        rows: list[int] = []
        sizes: list[float] = []
        for name, size in readings:
            row = row_by_name.get(name)
            if row is None:
                row = self._add_row(name)
                if row is None:
                    continue
            rows.append(row)
            sizes.append(size)
        column = self._column_count
        place = column % self._step_count
        self._sizes[:, place] = np.nan
        order: Rows = np.array(rows, np.int32)
        self._sizes[order, place] = sizes
        self._column_count += 1
        return column, order

    def _add_row(self, name: QuantityName) -> int | None:
        row = len(self._names)
        if row >= self._max_rows:
            if len(self._left_out) < self._max_rows:
                self._left_out.add(name)
            return None
        if row >= len(self._sizes):
            grown = min(max(INITIAL_ROW_COUNT, 2 * row), self._max_rows)
            table = np.full((grown, self._step_count), np.nan)
            table[:row] = self._sizes
            self._sizes = table
        self._rows[name] = row
        self._names.append(name)
        return row

    def name(self, row: int) -> QuantityName:
        """Return the name of a quantity."""
        return self._names[row]

    def get_sizes(self, column: int) -> Values:
        """Return the size of each quantity in a step; nan if it is unknown."""
        return self._sizes[: len(self._names), column % self._step_count]

    def get_earlier_sizes(self, column: int, count: int) -> Values:
        """Return the sizes of all quantities in up to ``count`` steps before a step, oldest first."""
        first = max(0, column - count, self._column_count - self._step_count)
        columns = np.arange(first, column) % self._step_count
        return self._sizes[: len(self._names), columns]

    def was_infinite(self, name: QuantityName, column: int) -> bool:
        """Return True if a quantity was infinite in a step before ``column``."""
        row = self._rows.get(name)
        return row is not None and bool(np.isinf(self.get_earlier_sizes(column, self._step_count)[row]).any())

"""The results of a batch as columns: measurements, and the verdicts of policies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe_core.model.columns import Array
from probe_core.model.rows import SEVERITIES, Drift, Measurement, Verdict

NOISE = Drift._fields.index("noise")
"""Column of ``VerdictColumn.drifts`` that is nan in rows without a distance; other columns may be nan in any row."""


class MeasurementColumn:
    """The measurements of a column.

    Attributes:
        numbers: Float values.
        codes: 0 for a float, otherwise a code in ``others``.
        others: Measurements that are not floats, after a placeholder.
    """

    def __init__(self, count: int, others: Sequence[Measurement] = ()) -> None:
        self.numbers = np.zeros(count)
        self.codes = np.zeros(count, np.int32)
        self.others: list[Measurement] = [Measurement(), *others]

    def __getitem__(self, line: int) -> Measurement:
        code = self.codes.item(line)
        return self.others[code] if code else Measurement(self.numbers.item(line))

    def __setitem__(self, line: int, measurement: Measurement) -> None:
        if type(measurement.value) is float and measurement.reason is None:
            self.numbers[line], self.codes[line] = measurement.value, 0
        else:
            self.codes[line] = self.encode(measurement)

    def encode(self, measurement: Measurement) -> int:
        """Return the code of a measurement that is not a float."""
        for code, candidate in enumerate(self.others[1:9], 1):
            if candidate is measurement or (candidate.value is None and candidate == measurement):
                return code
        self.others.append(measurement)
        return len(self.others) - 1

    def select(self, lines: Array) -> MeasurementColumn:
        """Return the measurements of some rows."""
        column = MeasurementColumn(0, self.others[1:])
        column.numbers, column.codes = self.numbers[lines], self.codes[lines]
        return column

    def put(self, lines: Array, column: MeasurementColumn) -> None:
        """Set the measurements of some rows to those of another column."""
        codes = np.array([0, *map(self.encode, column.others[1:])], np.int32)
        self.numbers[lines], self.codes[lines] = column.numbers, codes[column.codes]

    @property
    def floats(self) -> Array:
        """The number of each row as a float; nan in rows without one."""
        others = [np.nan if measurement.number is None else float(measurement.number) for measurement in self.others]
        return np.where(self.codes == 0, self.numbers, np.array(others)[self.codes])

    @property
    def has_value(self) -> Array:
        """True for rows with a value."""
        return np.array([True, *(measurement.value is not None for measurement in self.others[1:])])[self.codes]


class LineMeasurements(Mapping[str, Measurement]):
    """The measurements of one row."""

    def __init__(self, columns: Mapping[str, MeasurementColumn], line: int) -> None:
        self._columns, self._line = columns, line

    def __getitem__(self, name: str) -> Measurement:
        return self._columns[name][self._line]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class VerdictColumn:
    """The verdicts of one policy.

    Attributes:
        table: Distinct verdicts without their distances.
        codes: The code of each row's verdict.
        drifts: The fields of ``Drift``, of shape (rows, 5); nan in rows without one. None if no row has any.
    """

    def __init__(self, table: Sequence[Verdict], codes: Array, drifts: Array | None = None) -> None:
        self.table, self.codes, self.drifts = [*table], codes, drifts

    def __getitem__(self, line: int) -> Verdict:
        verdict: Verdict = self.table[self.codes[line]]
        if self.drifts is None or np.isnan(self.drifts[line, NOISE]):
            return verdict
        return verdict._replace(drift=Drift(*self.drifts[line].tolist()))

    def items(self, lines: slice) -> list[Verdict]:
        """Return the verdicts of consecutive rows."""
        verdicts = [self.table[code] for code in self.codes[lines].tolist()]
        if self.drifts is not None:
            for place, drift in enumerate(self.drifts[lines].tolist()):
                if not math.isnan(drift[NOISE]):
                    verdicts[place] = verdicts[place]._replace(drift=Drift._make(drift))
        return verdicts

    def __setitem__(self, line: int, verdict: Verdict) -> None:
        if verdict.drift is not None and self.drifts is None:
            self.drifts = np.full((len(self.codes), len(Drift._fields)), np.nan)
        if self.drifts is not None:
            self.drifts[line] = verdict.drift or np.nan
        self.codes[line] = self._encode(verdict if verdict.drift is None else verdict._replace(drift=None))

    def put(self, lines: Array, column: VerdictColumn) -> None:
        """Set the verdicts on some rows to those of another column."""
        if self.drifts is None and column.drifts is not None:
            self.drifts = np.full((len(self.codes), len(Drift._fields)), np.nan)
        if self.drifts is not None:
            self.drifts[lines] = np.nan if column.drifts is None else column.drifts
        self.codes[lines] = np.array([*map(self._encode, column.table)], np.int32)[column.codes]

    def _encode(self, bare: Verdict) -> int:
        """Return the code of a verdict without a distance."""
        for code, candidate in enumerate(self.table[:8]):
            if candidate is bare or candidate == bare:
                return code
        self.table.append(bare)
        return len(self.table) - 1

    def map_verdicts(self, field: Callable[[Verdict], Any]) -> Array:
        """Return a property of each row's verdict."""
        return np.array([field(verdict) for verdict in self.table])[self.codes]

    @property
    def has_drift(self) -> Array:
        """True for rows with a distance."""
        return np.zeros(len(self.codes), bool) if self.drifts is None else ~np.isnan(self.drifts[:, NOISE])

    @property
    def levels(self) -> Array:
        """The severity of each row's level."""
        return self.map_verdicts(lambda verdict: SEVERITIES[verdict.level])


@dataclass
class BatchResults:
    """The measurements and verdicts of a batch, which processes exchange."""

    measurements: dict[str, MeasurementColumn] = field(default_factory=dict)
    verdicts: VerdictColumn | None = None
    further: dict[str, VerdictColumn] = field(default_factory=dict)

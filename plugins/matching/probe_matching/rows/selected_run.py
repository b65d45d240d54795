"""A view of a run with only those rows of its values that another run has as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.files.mapped import allow_mapping, find_mapped_file
from probe_core.model import Kind, Record, Side, Statistics, Value
from probe_core.model.columns import Array, create_columns
from probe_core.model.run import Run
from probe_matching.derived_run import DerivedRun
from probe_matching.rows.decisions import Decision, Treatment
from probe_matching.rows.distances import widen
from probe_matching.rows.gather import gather
from probe_matching.rows.places import Places
from probe_matching.rows.survey import Fingerprint, compute_fingerprint

Decisions = Mapping[tuple[str, Side, str], Decision]


class SelectedRun(DerivedRun):
    """A run whose values contain only the chosen rows, with the statistics of these rows.

    Args:
        run: The run, which is closed with this one.
        places: The chosen places of its batch.
        decisions: The decision on each value that the other run has as well.
        by_fingerprint: The decisions by the fingerprints of tensors, for values that the other run lacks: their
            statistics are then those by which calls that both runs make recognize them.
        is_scaled: True to multiply gradients by the factor of their decision.
    """

    def __init__(
        self,
        run: Run,
        places: Places,
        decisions: Decisions,
        by_fingerprint: Mapping[Fingerprint, Decision],
        *,
        is_scaled: bool,
    ) -> None:
        super().__init__(run)
        self._places, self._is_scaled = places, is_scaled
        self._decisions: dict[str, Decision] = {}
        self._by_fingerprint = by_fingerprint
        self.values = create_columns(self._select(record, decisions) for record in run.records())
        self.starts, self.signatures = self.values.starts, self.values.signatures

    def _select(self, record: Record, decisions: Decisions) -> Record:
        slots = []
        for slot in record.slots:
            decision = decisions.get((record.key, *slot.place))
            if decision is None and slot.value.kind is Kind.TENSOR:
                decision = self._by_fingerprint.get(compute_fingerprint(slot.value))
            slots.append(slot if decision is None else slot._replace(value=self._select_value(slot.value, decision)))
        return Record(record.index, record.key, tuple(slots))

    def _select_value(self, value: Value, decision: Decision) -> Value:
        """Return a value as this run shows it."""
        if decision.treatment is Treatment.OMITTED:
            return value._replace(omission=decision.omission)
        if decision.treatment is Treatment.WHOLE:
            return value
        if value.data_name is None:
            return value._replace(statistics=Statistics(), checksum=None)
        self._decisions[value.data_name] = decision
        try:
            with allow_mapping:
                array = self.tensor(value)
        except UnreadableTensor:
            return value._replace(statistics=Statistics(), checksum=None)
        statistics = compute_statistics(array, value.statistics)
        shape = tuple(array.shape)
        return value._replace(extent=str(list(shape)), shape=shape, statistics=statistics, checksum=None)

    def tensor(self, value: Value) -> Array:
        """Return the chosen rows of a tensor value.

        Raises:
            UnreadableTensor: The data is missing or damaged, or has another shape than its record.
        """
        decision = self._decisions.get(value.data_name or "")
        array = super().tensor(value)
        if decision is None or decision.layout is None:
            return array
        try:
            chosen = gather(array, decision.layout, self._places)
        except ValueError:
            raise UnreadableTensor(f"{value.data_name} has another shape than its record") from None
        memory = find_mapped_file(array)
        problem = None if memory is None else memory.find_problem()
        if problem is not None:
            raise UnreadableTensor(problem)
        if self._is_scaled and decision.scale != 1.0:
            return (chosen * decision.scale).astype(chosen.dtype)
        return chosen

    def record(self, index: int) -> Record:
        """Return the record at ``index``."""
        return self.values.record(index)


def compute_statistics(array: Array, recorded: Statistics) -> Statistics:
    """Return maximum, minimum, mean and norm of an array, in float64; None for those not recorded."""
    if array.dtype.kind == "c" or not array.size:
        return Statistics()
    numbers: Iterable[Any]
    if array.dtype.kind == "b":
        numbers = bool(array.max()), bool(array.min()), None, None
    else:
        wider = widen(array)
        with np.errstate(all="ignore"):
            ends = (
                (array.max().item(), array.min().item())
                if array.dtype.kind in "iu"
                else (float(wider.max()), float(wider.min()))
            )
            numbers = *ends, float(wider.mean()), float(np.sqrt((wider**2).sum()))
    return Statistics._make(
        None if recorded_number is None else number for number, recorded_number in zip(numbers, recorded)
    )

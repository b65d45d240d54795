"""Recorded values of a run, by the rows of a table."""

from __future__ import annotations

from probe_core.model import Value
from probe_core.model.run import Run


def find_value(run: Run, op: str, row: str) -> Value | None:
    """Return the recorded value of a row of an op; None if the run has none."""
    place = run.find(op)
    if place is None:
        return None
    suffix = row.removeprefix(op)
    slots = run.record(place).slots
    return next((slot.value for slot in slots if slot.name.removeprefix(op) == suffix), None)

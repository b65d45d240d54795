"""Producers of values: the calls that returned what another call takes in, by their recorded fingerprints."""

from __future__ import annotations

import math

from probe_core.model import Kind, Record, Side, Value
from probe_core.model.dtypes import kind
from probe_core.model.run import Run
from probe_diagnosis.difference.facts import is_module

SEARCHED = 4096
"""Number of records before a call that are searched for the producer of what it takes in."""


def slot_value(run: Run, op: str, row: str) -> Value | None:
    """Return the recorded value of a row of an op; None if the run has none."""
    place = run.find(op)
    if place is None:
        return None
    suffix = row.removeprefix(op)
    slots = run.record(place).slots
    return next((slot.value for slot in slots if slot.name.removeprefix(op) == suffix), None)


def producer(run: Run, op: str, row: str) -> str:
    """Return the key of the call that returned a value; empty if none is found.

    The producer is the last call before ``op`` that returned a tensor of the same dtype, shape, checksum and
    statistics; a module only if no API did.

    Args:
        run: The run.
        op: The call that takes the value in.
        row: The name of the value's row.
    """
    value = slot_value(run, op, row)
    place = run.find(op)
    if value is None or place is None or value.kind is not Kind.TENSOR or not _has_fingerprint(value):
        return ""
    module = ""
    for before in range(place - 1, max(-1, place - 1 - SEARCHED), -1):
        record = run.record(before)
        if _returns(record, value):
            if not is_module(record.key):
                return record.key
            module = module or record.key
    return module


def producers(run: Run, op: str) -> tuple[str, ...]:
    """Return the keys of the calls that returned the tensors that a call takes in, where found."""
    place = run.find(op)
    slots = run.record(place).slots if place is not None else ()
    found = (producer(run, op, slot.name) for slot in slots if slot.side.is_source)
    return tuple(dict.fromkeys(key for key in found if key))


def hides(run: Run, op: str) -> bool:
    """Return True for a call whose output says little by its statistics: integers, truth values, a mask."""
    place = run.find(op)
    slots = run.record(place).slots if place is not None else ()
    values = [s.value for s in slots if s.side is Side.OUTPUT and s.value.kind is Kind.TENSOR]
    return bool(values) and all(
        kind(value.dtype) != "float" or value.statistics.min == -math.inf for value in values
    )


def takes_in(run: Run, op: str, value: Value) -> bool:
    """Return True if a call takes in a tensor of the same dtype, shape, checksum and statistics."""
    place = run.find(op)
    slots = run.record(place).slots if place is not None else ()
    wanted = _fingerprint(value)
    return any(slot.side.is_source and _fingerprint(slot.value) == wanted for slot in slots)


def output_dtypes(run: Run, op: str) -> tuple[str, ...]:
    """Return the dtypes of the tensors that a call returned."""
    place = run.find(op)
    slots = run.record(place).slots if place is not None else ()
    return tuple(s.value.dtype for s in slots if s.side is Side.OUTPUT and s.value.kind is Kind.TENSOR)


def _returns(record: Record, value: Value) -> bool:
    wanted = _fingerprint(value)
    return any(slot.side is Side.OUTPUT and _fingerprint(slot.value) == wanted for slot in record.slots)


def _has_fingerprint(value: Value) -> bool:
    return value.checksum is not None or value.statistics.max is not None


def _fingerprint(value: Value) -> tuple[object, ...]:
    return value.dtype, value.extent, value.checksum, *map(repr, value.statistics)

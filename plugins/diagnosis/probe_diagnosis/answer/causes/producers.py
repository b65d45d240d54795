"""Producers of values: the calls that returned what another call receives, by their recorded fingerprints."""

from __future__ import annotations

import math

from probe_core.model import Kind, Record, Side, Value
from probe_core.model.dtypes import get_dtype_kind
from probe_core.model.run import Run
from probe_core.store.names import is_module
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.recorded import find_value


def find_start(run: Run, op: str) -> int | None:
    """Return the index of the first record of a call: that of the first call within a module; None if unknown."""
    names, index = run.names(), run.find(op)
    if index is None or not is_module(op):
        return index
    while index > 0 and op in run.construct.ancestors(names[index - 1]):
        index -= 1
    return index


def find_producer(run: Run, op: str, row: str) -> str:
    """Return the key of the call that returned a value; empty if none is found.

    The producer is the last call before ``op`` that returned a tensor of the same dtype, shape, checksum and
    statistics; a module only if no API did.

    Args:
        run: The run.
        op: The call that receives the value.
        row: The name of the value's row.
    """
    value = find_value(run, op, row)
    index = find_start(run, op)
    if value is None or index is None or value.kind is not Kind.TENSOR or not _has_fingerprint(value):
        return ""
    module = ""
    for earlier_index in range(index - 1, max(-1, index - 1 - limits().max_searched_records), -1):
        record = run.record(earlier_index)
        if _returns_value(record, value):
            if not is_module(record.key):
                return record.key
            module = module or record.key
    return module


def find_producers(run: Run, op: str) -> dict[str, str]:
    """Return the calls that returned the tensors which an op receives, by the paths of its inputs.

    Inputs whose producer is not found are left out. As in ``find_producer``, the last call before the op counts,
    and a module only if no API returned the tensor.
    """
    index, start = run.find(op), find_start(run, op)
    if index is None or start is None:
        return {}
    wanted: dict[tuple[object, ...], list[str]] = {}
    for slot in run.record(index).slots:
        if slot.side.is_source and slot.value.kind is Kind.TENSOR and _has_fingerprint(slot.value):
            wanted.setdefault(compute_fingerprint(slot.value), []).append(slot.name.removeprefix(f"{op}."))
    keys_by_path: dict[str, str] = {}
    missing, by_modules = set(wanted), dict[tuple[object, ...], str]()
    for earlier_index in range(start - 1, max(-1, start - 1 - limits().max_searched_records), -1):
        if not missing:
            break
        record = run.record(earlier_index)
        for slot in record.slots:
            if slot.side is not Side.OUTPUT or (mark := compute_fingerprint(slot.value)) not in missing:
                continue
            if is_module(record.key):
                by_modules.setdefault(mark, record.key)
            else:
                missing.discard(mark)
                keys_by_path |= dict.fromkeys(wanted[mark], record.key)
    for mark in missing & by_modules.keys():
        keys_by_path |= dict.fromkeys(wanted[mark], by_modules[mark])
    return dict(sorted(keys_by_path.items()))


def returns_its_inputs(run: Run, op: str) -> bool:
    """Return True for a call that returns only tensors that it received, such as a move to another device."""
    index = run.find(op)
    slots = run.record(index).slots if index is not None else ()
    tensors = [slot for slot in slots if slot.value.kind is Kind.TENSOR]
    received = {compute_fingerprint(slot.value) for slot in tensors if slot.side.is_source}
    returned = {compute_fingerprint(slot.value) for slot in tensors if slot.side is Side.OUTPUT}
    return bool(returned) and returned <= received


def has_uninformative_output(run: Run, op: str) -> bool:
    """Return True for a call whose output has statistics that identify it poorly: integers, booleans, a mask."""
    index = run.find(op)
    slots = run.record(index).slots if index is not None else ()
    values = [s.value for s in slots if s.side is Side.OUTPUT and s.value.kind is Kind.TENSOR]
    return bool(values) and all(
        get_dtype_kind(value.dtype) != "float" or value.statistics.min == -math.inf for value in values
    )


def receives_tensor(run: Run, op: str, value: Value) -> bool:
    """Return True if a call receives a tensor of the same dtype, shape, checksum and statistics."""
    index = run.find(op)
    slots = run.record(index).slots if index is not None else ()
    wanted = compute_fingerprint(value)
    return any(slot.side.is_source and compute_fingerprint(slot.value) == wanted for slot in slots)


def is_received(run: Run, op: str) -> bool:
    """Return True if a later call, other than the modules around an op, receives a tensor that the op returned."""
    index = run.find(op)
    if index is None:
        return False
    outputs = (slot.value for slot in run.record(index).slots if slot.side is Side.OUTPUT)
    wanted = {compute_fingerprint(value) for value in outputs if _has_fingerprint(value)}
    around = run.construct.ancestors(op)
    return any(
        record.key not in around
        and any(slot.side.is_source and compute_fingerprint(slot.value) in wanted for slot in record.slots)
        for record in map(run.record, range(index + 1, min(len(run), index + 1 + limits().max_searched_records)))
    )


def has_same_fingerprint(first: Value, second: Value) -> bool:
    """Return True for tensors of the same dtype, shape, checksum and statistics, if these identify them."""
    is_known = first.kind is Kind.TENSOR and _has_fingerprint(first)
    return is_known and compute_fingerprint(first) == compute_fingerprint(second)


def list_output_dtypes(run: Run, op: str) -> tuple[str, ...]:
    """Return the dtypes of the tensors that a call returned."""
    index = run.find(op)
    slots = run.record(index).slots if index is not None else ()
    return tuple(s.value.dtype for s in slots if s.side is Side.OUTPUT and s.value.kind is Kind.TENSOR)


def _returns_value(record: Record, value: Value) -> bool:
    wanted = compute_fingerprint(value)
    return any(slot.side is Side.OUTPUT and compute_fingerprint(slot.value) == wanted for slot in record.slots)


def _has_fingerprint(value: Value) -> bool:
    return value.checksum is not None or value.statistics.max is not None


def compute_fingerprint(value: Value) -> tuple[object, ...]:
    """Return what identifies a value wherever calls of a run receive or return it."""
    return value.dtype, value.extent, value.checksum, *map(repr, value.statistics)

"""The file ``anomaly_analyze_{ns}.json`` in msprobe's layout (docs/nan-analyze.md#files)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probe_diagnosis.frames import find_frames
from probe_recording.api import DumpRun

from probe_core.model import Kind, Record, Side, Slot
from probe_core.model.run import Run
from probe_core.store.names import is_backward
from probe_watch.nan_analysis.findings import NonFiniteAnalysis

FIELDS = ("input_args", "input_kwargs", "output", "input")
"""Fields of a record that the file repeats."""


def create_content(analysis: NonFiniteAnalysis) -> dict[str, list[dict[str, Any]]]:
    """Return the content of the file: the first calls with values that are not finite, by rank."""
    content: dict[str, list[dict[str, Any]]] = {}
    for first in analysis.first:
        run = analysis.ranks[first.rank].run
        content.setdefault(f"rank_{first.rank}", []).append(
            {
                "op_name": first.op,
                "data_info": _read_fields(run, first.number),
                "construct_info": [*reversed(first.modules), first.op],
                "stack_info": list(find_frames(run, first.op)),
            }
        )
    return content


def _read_fields(run: Run, number: int) -> dict[str, Any]:
    """Return the fields of a record as its file has them, or made of its values for other formats."""
    if not isinstance(run, DumpRun):
        return _compose_fields(run.record(number))
    fields = run.fields(number)
    if not isinstance(fields, Mapping):
        return {"output": fields}
    return {name: fields[name] for name in FIELDS if name in fields}


def _compose_fields(record: Record) -> dict[str, Any]:
    """Return the fields of a record that is not in a dump.json."""
    is_backward_call = is_backward(record.key)
    fields: dict[str, Any] = {"input": []} if is_backward_call else {"input_args": [], "input_kwargs": {}}
    fields["output"] = []
    for slot in record.slots:
        if not slot.side.is_source:
            fields["output"].append(_convert_slot(slot))
        elif is_backward_call:
            fields["input"].append(_convert_slot(slot))
        elif slot.path.partition(".")[0].isdecimal() and slot.side is Side.INPUT:
            fields["input_args"].append(_convert_slot(slot))
        else:
            fields["input_kwargs"][slot.path] = _convert_slot(slot)
    return fields


def _convert_slot(slot: Slot) -> Any:
    value = slot.value
    if value.kind is Kind.NULL:
        return None
    if value.kind is Kind.SCALAR:
        return {"type": value.dtype, "value": value.statistics.max}
    names = ("Max", "Min", "Mean", "Norm")
    return {
        "type": "tensor", "dtype": value.dtype, "shape": list(value.shape or ()),
        **dict(zip(names, value.statistics)), "requires_grad": value.requires_grad,
    }  # fmt: skip

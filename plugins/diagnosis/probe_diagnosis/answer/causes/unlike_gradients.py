"""Gradients that the two runs compute with different calls, and that a call of both runs receives.

The rounding error bound of a gradient depends on the values that its backward call adds up: the gradient of a bias
before a softmax contains nothing but rounding. So the difference of two such gradients is attributed to the call that
returned the gradient, where the search measures it relative to the other values of that call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod, sqrt

import numpy as np

from probe_core.model import Kind, Quantity, Record, Side, Value
from probe_core.model.dtypes import get_dtype_kind
from probe_core.model.run import Run
from probe_core.store.names import is_backward
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.producers import compute_fingerprint
from probe_diagnosis.answer.causes.unpaired_calls import rename_row
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.rank_facts import RankFacts

MEASURED_FIELDS = ("state", "basis", "quantity", "kind", "distance", "scale", "noise", "jump")
"""Fields of a line that describe how a value differs."""


def attribute_unlike_gradients(facts: RankFacts, runs: ComparedRuns) -> None:
    """Attribute differences of gradients that are rounding to the unpaired backward calls that returned them."""
    returned = [_index_gradients(run, keys) for run, keys in zip(runs.both, (facts.target_only, facts.golden_only))]
    for line, values in _iterate_received(facts, runs) if all(returned) else ():
        sources = [gradients.get(compute_fingerprint(value)) for gradients, value in zip(returned, values)]
        if sources[0] is not None and sources[1] is not None:
            _attribute(facts.ops, line, *sources[0])
    facts.ops.clear_caches()


def _attribute(calls: CallColumns, received_line: int, backward: Record, gradient: str) -> None:
    """Copy the difference of a received gradient to the call that returned it, unless it is more than rounding.

    Args:
        calls: The calls of the target.
        received_line: The line of the received gradient.
        backward: The call that returned it.
        gradient: The name of its row in that call.
    """
    lines, number = calls.table.lines, calls.numbers_by_key[backward.key]
    received = lines[received_line]
    sizes = {
        slot.name: _compute_magnitude(slot.value, int(received["quantity"]))
        for slot in backward.slots
        if slot.value.kind is Kind.TENSOR and get_dtype_kind(slot.value.dtype) == "float"
    }
    if received["distance"] > received["noise"] * max(sizes.values(), default=0.0):
        return
    for line in calls.get_lines(number):
        name = calls.table.get_row_name(line, backward.key)
        if name == gradient:
            for field in MEASURED_FIELDS:
                lines[field][line] = received[field]
        elif not lines["scale"][line] and name in sizes:
            lines["scale"][line], lines["noise"][line] = sizes[name], received["noise"]


def _index_gradients(run: Run, keys: Iterable[str]) -> dict[object, tuple[Record, str]]:
    """Return the backward call that returned a gradient, and the name of its row, by the identity of the gradient."""
    gradients: dict[object, tuple[Record, str]] = {}
    for key in filter(is_backward, keys):
        index = run.find(key)
        if index is None:
            continue
        record = run.record(index)
        for slot in record.slots:
            if slot.side is Side.OUTPUT and slot.value.kind is Kind.TENSOR:
                gradients[compute_fingerprint(slot.value)] = record, slot.name
    return gradients


def _iterate_received(facts: RankFacts, runs: ComparedRuns) -> Iterator[tuple[int, tuple[Value, Value]]]:
    """Yield each differing tensor that a call of no backward pass receives: its line, and its values in both runs."""
    calls, table = facts.ops, facts.ops.table
    is_received = table.differs & table.is_source & table.is_tensor
    for number in np.flatnonzero(calls.has_any(is_received)).tolist():
        key = calls.keys[number]
        golden = calls.golden_ops.get(number, key)
        if is_backward(key):
            continue
        values = [_map_values(run, op) for run, op in zip(runs.both, (key, golden))]
        for line in filter(is_received.__getitem__, calls.get_lines(number)):
            row = table.get_row_name(line, key)
            target_value, golden_value = values[0].get(row), values[1].get(rename_row(row, key, golden))
            if target_value is not None and golden_value is not None:
                yield line, (target_value, golden_value)


def _map_values(run: Run, op: str) -> dict[str, Value]:
    """Return the values of a call by the names of their rows."""
    index = run.find(op)
    return {} if index is None else {slot.name: slot.value for slot in run.record(index).slots}


def _compute_magnitude(value: Value, quantity: int) -> float:
    """Return the size of a tensor in the unit of a quantity: its root mean square or its largest magnitude."""
    statistics = value.statistics
    sizes = [abs(number) for number in (statistics.max, statistics.min) if isinstance(number, float)]
    if quantity not in (Quantity.RMS, Quantity.UNMASKED_RMS):
        return max(sizes, default=0.0)
    count = prod(value.shape or ())
    return statistics.norm / sqrt(count) if isinstance(statistics.norm, float) and count else 0.0

"""Values that are not finite and harm nothing: masks, values that later calls drop, overwritten memory.

docs/nan-analyze.md#masks states the rules. All of them are general properties of the record; no API is named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from probe_diagnosis.collectives.calls import find_api
from probe_diagnosis.judges.uninitialized import find_uninitialized_slots
from probe_diagnosis.timeline.order import is_move

from probe_core.model import Kind, Record, Side, Slot
from probe_core.model.columns import Array
from probe_core.model.dtypes import get_dtype_kind
from probe_core.model.run import Run
from probe_core.store.names import is_backward, is_module
from probe_watch.nan_analysis.non_finite import NonFinite

MASK_KINDS = frozenset(["-inf"])
"""Kinds of the values of a mask that was made outside the recorded calls."""


class ValueMark(IntEnum):
    """Meanings of a value."""

    FINITE = 0
    HARMFUL = 1
    GIVEN = 2
    """Argument; infinity that an argument asked for, or a mask from outside, and what calls pass on of it."""
    ABSORBED = 3
    """All calls that read it return finite floating-point numbers."""
    OVERWRITTEN = 4
    """Memory that is not initialized, or is overwritten before it is read."""


@dataclass(frozen=True, slots=True)
class InfinitySource:
    """Origin of an infinity that is meant to be there.

    Attributes:
        op: The first call that has it.
        is_argument: True if an argument of that call asked for it, False if the call received it.
    """

    op: str
    is_argument: bool


Print = tuple[str, str]
"""Maximum and minimum of a value as texts, by which it is recognized where another call reads it."""


@dataclass(slots=True)
class Marks:
    """Meanings of the values of one rank.

    Attributes:
        marks: A ``Mark`` for each line of the run.
        sources: Origins of the intended infinities.
    """

    marks: Array
    sources: dict[Print, InfinitySource] = field(default_factory=dict)

    @property
    def is_harmful(self) -> Array:
        """True for non-finite values that are not intended."""
        return np.asarray(self.marks == ValueMark.HARMFUL)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A non-finite value: its line, slot, fingerprint and kinds."""

    line: int
    slot: Slot
    print: Print
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call with non-finite values, without values that it overwrites.

    Attributes:
        record: Its record.
        inputs: The non-finite tensors that it reads.
        outputs: The non-finite values that it returns.
        asked: Kinds of infinities that its arguments request.
        unfilled: Uninitialized memory that it returns.
        is_known: True if all tensors that it returns were recorded with statistics.
    """

    record: Record
    inputs: list[_Leaf]
    outputs: list[_Leaf]
    asked: frozenset[str]
    unfilled: frozenset[Print]
    is_known: bool

    @property
    def is_forward(self) -> bool:
        """True for a call of the forward pass."""
        return not is_backward(self.record.key)


def mark_values(
    run: Run, rank: int, values: NonFinite, order: Sequence[int], elsewhere: Collection[Print] = ()
) -> Marks:
    """Return the marks of all values of a rank.

    Args:
        run: The run.
        rank: The number of the rank.
        values: The non-finite values of the rank.
        order: The numbers of the records, in the order of their effects.
        elsewhere: Intended infinities of other ranks, which may send them.
    """
    is_any = values.any
    result = Marks(np.where(is_any, ValueMark.HARMFUL, ValueMark.FINITE).astype(np.uint8))
    if not is_any.any():
        return result
    has_any = set(run.values.record_of[is_any].tolist())
    calls = [_call(run, rank, number, values, result.marks) for number in order if number in has_any]
    calls = [*_exclude_unfilled_views(calls, result.marks)]
    _follow_masks(calls, result, set(elsewhere))
    _drop_absorbed(calls, result.marks)
    return result


def _call(run: Run, rank: int, number: int, values: NonFinite, marks: Array) -> _Call:
    """Return a call, and mark the values that it overwrites."""
    record, first = run.record(number), run.values.starts[number]
    overwritten = find_uninitialized_slots(record, rank)
    inputs: list[_Leaf] = []
    outputs: list[_Leaf] = []
    asked: set[str] = set()
    unfilled: set[Print] = set()
    for place, slot in enumerate(record.slots):
        kinds = values.list_kinds(first + place)
        if not kinds:
            continue
        if place in overwritten:
            marks[first + place] = ValueMark.OVERWRITTEN
            if not slot.side.is_source:
                unfilled.add(get_print(slot))
        elif not slot.side.is_source:
            outputs.append(_create_leaf(first + place, slot, kinds))
        elif slot.value.kind is Kind.TENSOR:
            inputs.append(_create_leaf(first + place, slot, kinds))
        else:
            marks[first + place] = ValueMark.GIVEN
            asked |= kinds - {"nan"}
    is_known = not values.is_unknown[first : first + len(record.slots)][_mark_outputs(record)].any()
    return _Call(record, inputs, outputs, frozenset(asked), frozenset(unfilled), is_known)


def _mark_outputs(record: Record) -> Array:
    """Return True for each value that a call returns."""
    return np.array([not slot.side.is_source for slot in record.slots], bool)


def _create_leaf(line: int, slot: Slot, kinds: frozenset[str]) -> _Leaf:
    return _Leaf(line, slot, get_print(slot), kinds)


def get_print(slot: Slot) -> Print:
    """Return the fingerprint of a value, which views and other arrangements share."""
    high, low = (str(number).lower() for number in slot.value.statistics[:2])
    return high, low


def _exclude_unfilled_views(calls: Iterable[_Call], marks: Array) -> Iterator[_Call]:
    """Yield the calls except views of memory that is not initialized, whose values are marked."""
    unfilled: set[Print] = set()
    for call in calls:
        leaves = [*call.inputs, *call.outputs]
        if call.inputs and is_move(call.record.key) and all(leaf.print in unfilled for leaf in leaves):
            marks[[leaf.line for leaf in leaves]] = ValueMark.OVERWRITTEN
            continue
        unfilled |= call.unfilled
        unfilled -= {leaf.print for leaf in call.outputs}
        yield call


def _follow_masks(calls: Iterable[_Call], result: Marks, elsewhere: Collection[Print]) -> None:
    """Mark infinities that an argument asked for or that came from outside, and what is made of them."""
    sources, marks = result.sources, result.marks
    computed: set[Print] = set()
    for call in calls:
        for leaf in call.inputs:
            is_from_outside = leaf.print not in computed and leaf.kinds == MASK_KINDS and call.is_forward
            if leaf.print not in sources and is_from_outside:
                sources[leaf.print] = InfinitySource(call.record.key, is_argument=False)
            if leaf.print in sources:
                marks[leaf.line] = ValueMark.GIVEN
        intended_inputs = [leaf for leaf in call.inputs if leaf.print in sources]
        kinds = call.asked.union(*(leaf.kinds for leaf in intended_inputs))
        is_clean = len(intended_inputs) == len(call.inputs)
        for leaf in call.outputs:
            is_passed_on = is_clean and leaf.kinds <= kinds
            if is_passed_on and leaf.print not in sources:
                origin = (
                    sources[intended_inputs[0].print]
                    if intended_inputs
                    else InfinitySource(call.record.key, is_argument=True)
                )
                sources[leaf.print] = origin
            elif leaf.print in elsewhere and find_api(call.record.key) is not None:
                sources.setdefault(leaf.print, InfinitySource(call.record.key, is_argument=False))
            elif not is_passed_on and not (leaf.print in sources and is_module(call.record.key)):
                computed.add(leaf.print)
                sources.pop(leaf.print, None)
            if leaf.print in sources:
                marks[leaf.line] = ValueMark.GIVEN


def _drop_absorbed(calls: Sequence[_Call], marks: Array) -> None:
    """Mark harmful values that are read, and only by calls that return finite floating-point numbers."""
    is_absorbed_after: dict[Print, bool] = {}
    for call in reversed(calls):
        for leaf in _iterate_harmful(call.outputs, marks):
            if is_absorbed_after.get(leaf.print, False):
                marks[leaf.line] = ValueMark.ABSORBED
        absorbs = _is_absorbing(call, marks)
        for leaf in _iterate_harmful(call.inputs, marks):
            if absorbs is not None:
                is_absorbed_after[leaf.print] = absorbs and is_absorbed_after.get(leaf.print, True)
            if is_absorbed_after.get(leaf.print, False):
                marks[leaf.line] = ValueMark.ABSORBED


def _iterate_harmful(leaves: Iterable[_Leaf], marks: Array) -> Iterator[_Leaf]:
    return (leaf for leaf in leaves if marks[leaf.line] == ValueMark.HARMFUL)


def _is_absorbing(call: _Call, marks: Array) -> bool | None:
    """Return True if a call drops what is not finite, False if it passes it on, None if nothing shows it.

    Integers and truth values, such as those of a check for nan, show nothing. Communication passes values on
    to other ranks, whatever it returns on this one.
    """
    if find_api(call.record.key) is not None:
        return False
    outputs = [slot for slot in call.record.slots if not slot.side.is_source]
    if not outputs or not call.is_known or any(True for _ in _iterate_harmful(call.outputs, marks)):
        return False
    returns_floats = any(
        slot.value.kind is Kind.TENSOR
        and slot.side is Side.OUTPUT
        and get_dtype_kind(slot.value.dtype) in ("float", "complex")
        and not slot.value.is_empty
        for slot in outputs
    )
    return True if returns_floats else None

"""Corrections of single differences that need the other values of the same call."""

from __future__ import annotations

import math
from collections.abc import Sequence

from probe_core.model import Kind, MatchKind, Pair, Side, Slot
from probe_core.model.dtypes import get_dtype_kind
from probe_diagnosis.timeline.compared_calls import (
    Basis,
    DifferenceKind,
    ValueComparison,
    ValueState,
    describe_none,
    format_scalar,
)
from probe_diagnosis.timeline.devices import is_device


def rescale_quotients(pairs: Sequence[Pair], values: Sequence[ValueComparison]) -> list[ValueComparison]:
    """Return the values, outputs measured beside the largest quotient that rounding of the dividend makes.

    Elements whose gradient is zero in theory are rounding alone; an optimizer divides them by their own size.
    What rounding explains of the whole dividend, divided by the least divisor, is explained of the result.
    """
    slots = [pair.golden for pair in pairs]
    tensors = [slot.value.statistics for slot in slots if slot and slot.side is Side.INPUT and _is_float(slot)]
    factors = [slot.value.statistics.max for slot in slots if slot and slot.side is Side.INPUT and not _is_float(slot)]
    if len(tensors) < 2:
        return list(values)
    dividend, divisor = (tensors[-2], tensors[-1])
    high, low, least = dividend.max, dividend.min, divisor.min
    if not (isinstance(high, float) and isinstance(low, float) and isinstance(least, float) and least > 0):
        return list(values)
    last = factors[-1] if len(tensors) > 2 and factors else None
    factor = abs(last) if isinstance(last, float) else 1.0
    scale = factor * max(abs(high), abs(low)) / least
    return [
        value._replace(scale=scale, state=ValueState.SAME, evidence="")
        if value.side is Side.OUTPUT and value.scale < scale and value.distance <= value.noise * scale
        else value
        for value in values
    ]


def _get_last_part(slot: Slot) -> str:
    """Return the last part of the name of a slot."""
    return slot.name.rpartition(".")[2]


def _is_float(slot: Slot) -> bool:
    return slot.value.kind is Kind.TENSOR and get_dtype_kind(slot.value.dtype) == "float"


def mark_one_sided_arguments(pairs: Sequence[Pair], values: Sequence[ValueComparison]) -> list[ValueComparison]:
    """Mark arguments that only one of two paired calls received as different.

    An argument that one call has by place and the other by name does not count, nor does a device. A tensor
    counts if the other call has None in its place, in a row of its own.
    """
    corrected = list(values)
    one_sided_texts: tuple[dict[int, str], dict[int, str]] = {}, {}
    tensors: tuple[list[int], list[int]] = [], []
    nulls: tuple[set[str], set[str]] = set(), set()
    is_paired = False
    for n, ((target, golden, pairing), value) in enumerate(zip(pairs, values)):
        is_whole = target is not None and golden is not None
        is_paired = is_paired or (is_whole and pairing is not MatchKind.REGION)
        slot = target or golden
        if slot is None or is_whole or value.side is not Side.INPUT:
            continue
        if not value.is_scalar:
            tensors[target is None].append(n)
        elif slot.value.kind is Kind.NULL:
            nulls[target is None].add(_get_last_part(slot))
        elif not is_device(slot.value):
            one_sided_texts[target is None][n] = format_scalar(slot.value)
    for side, places in enumerate(tensors):
        for n in places:
            present_slot = pairs[n].golden if side else pairs[n].target
            if present_slot is not None and _get_last_part(present_slot) in nulls[1 - side]:
                corrected[n] = _mark_none(corrected[n], present_slot, is_none_of_target=bool(side))
    for side, texts in enumerate(one_sided_texts if is_paired else ()):
        for n, text in texts.items():
            if text not in one_sided_texts[1 - side].values():
                is_by_place = values[n].row.rpartition(".")[2].isdecimal()
                absent = "nothing" if is_by_place else "the default"
                why = f"{absent} against {text}" if side else f"{text} against {absent}"
                corrected[n] = values[n]._replace(
                    state=ValueState.DIFFERS,
                    distance=math.inf,
                    scale=1.0,
                    kind=DifferenceKind.ONE_SIDED,
                    evidence=why,
                    basis=Basis.SCALAR,
                )
    return corrected


def _mark_none(value: ValueComparison, slot: Slot, *, is_none_of_target: bool) -> ValueComparison:
    """Return the difference of a tensor and None."""
    return value._replace(
        state=ValueState.DIFFERS,
        distance=math.inf,
        scale=1.0,
        is_scalar=True,
        kind=DifferenceKind.NONE,
        evidence=describe_none(slot.value, is_none_of_target=is_none_of_target),
        basis=Basis.PARAMETER if slot.value.requires_grad else Basis.NONE,
    )

"""Facts about an op from its rows, as few as the search needs; and facts as JSON data."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from probe_core.model import How, Kind, Op, Row, Side, Slot
from probe_core.model.dtypes import kind
from probe_diagnosis.collectives.calls import Call, Peer, apis
from probe_diagnosis.difference.facts import (
    DIFFERS,
    PARAMETER,
    SAME,
    UNJUDGED,
    Apart,
    OpFacts,
    shown_scalar,
)
from probe_diagnosis.difference.search import divides
from probe_diagnosis.difference.walking import OPTIMIZER
from probe_diagnosis.frames import own_frame

_OP = re.compile(r"(.+?\.(?:forward|backward)(?:\.\d+)?|.+?\.parameters_grad)\b")


def op_in(name: str) -> str:
    """Return the key of the op in the name of a row; empty if there is none."""
    match = _OP.match(name)
    return match[1] if match else ""


def facts_of(op: Op, rows: Sequence[Row], values: Sequence[Apart], call: Call | None) -> OpFacts:
    """Return the facts about an op.

    Of a call whose values agree, only the largest difference within rounding is kept, for the search asks no
    more of it.

    Args:
        op: The op.
        rows: Its rows, without those of other ops of the golden.
        values: The distances of these rows.
        call: The communication call that it is, if any.
    """
    if op.shifted:
        values = [
            value._replace(state=UNJUDGED, why="this call may be paired with the wrong one")
            for value in values
        ]
    if any(value.state == UNJUDGED and value.side is Side.INPUT for value in values):
        values = _with_arguments_of_one(rows, values)
    if OPTIMIZER in op.ancestors and divides(op.key):
        values = _beside_quotients(rows, values)
    golden, within = _golden_of(op.key, rows), tuple(op.ancestors)
    is_quiet, returns, agrees, lacking = call is None, False, True, 0
    for value in values:
        state = value.state
        if state == DIFFERS or value.dtypes or value.is_in_region:
            is_quiet = False
        if not value.is_scalar:
            lacking += state == UNJUDGED
            if not value.side.is_source:
                agrees = agrees and state == SAME
                returns = returns or value.noise > 0
    agrees = agrees and returns
    if is_quiet:
        return OpFacts(op.key, _quiet(values), None, within, lacking=lacking, golden=golden, agrees=agrees)
    where = own_frame(next((row.stack for row in rows if row.stack), ())) if call else ""
    return OpFacts(op.key, tuple(values), call, within, (0, 0), where, op.shifted, 0, golden, agrees)


def _beside_quotients(rows: Sequence[Row], values: Sequence[Apart]) -> list[Apart]:
    """Return the values, outputs measured beside the largest quotient that rounding of the dividend makes.

    Elements whose gradient is zero in theory are rounding alone; an optimizer divides them by their own size.
    What rounding explains of the whole dividend, divided by the least divisor, is explained of the result.
    """
    slots = [row.pair.golden for row in rows]
    tensors = [
        slot.value.statistics for slot in slots if slot and slot.side is Side.INPUT and _is_float(slot)
    ]
    factors = [
        slot.value.statistics.max
        for slot in slots
        if slot and slot.side is Side.INPUT and not _is_float(slot)
    ]
    if len(tensors) < 2:
        return list(values)
    above, below = (tensors[-2], tensors[-1])
    high, low, least = above.max, above.min, below.min
    if not (isinstance(high, float) and isinstance(low, float) and isinstance(least, float) and least > 0):
        return list(values)
    last = factors[-1] if len(tensors) > 2 and factors else None
    factor = abs(last) if isinstance(last, float) else 1.0
    scale = factor * max(abs(high), abs(low)) / least
    return [
        value._replace(scale=scale, state=SAME, why="")
        if value.side is Side.OUTPUT and value.scale < scale and value.distance <= value.noise * scale
        else value
        for value in values
    ]


def _last(slot: Slot) -> str:
    """Return the last part of the name of a slot."""
    return slot.name.rpartition(".")[2]


def _is_float(slot: Slot) -> bool:
    return slot.value.kind is Kind.TENSOR and kind(slot.value.dtype) == "float"


def _with_arguments_of_one(rows: Sequence[Row], values: Sequence[Apart]) -> list[Apart]:
    """Return the values, those of arguments that only one of two paired calls was given as different.

    An argument that one call has by place and the other by name is none of these. A tensor counts if the
    other call has None in its place, in a row of its own.
    """
    found = list(values)
    lone: tuple[dict[int, str], dict[int, str]] = {}, {}
    tensors: tuple[list[int], list[int]] = [], []
    nulls: tuple[set[str], set[str]] = set(), set()
    is_paired = False
    for n, (row, value) in enumerate(zip(rows, values)):
        target, golden = row.pair[:2]
        is_whole = target is not None and golden is not None
        is_paired = is_paired or (is_whole and row.pair.how is not How.REGION)
        slot = target or golden
        if slot is None or is_whole or value.side is not Side.INPUT:
            continue
        if not value.is_scalar:
            tensors[target is None].append(n)
        elif slot.value.kind is Kind.NULL:
            nulls[target is None].add(_last(slot))
        else:
            lone[target is None][n] = shown_scalar(slot.value)
    for side, places in enumerate(tensors):
        for n in places:
            given = rows[n].pair.golden if side else rows[n].pair.target
            if given is not None and _last(given) in nulls[1 - side]:
                found[n] = found[n]._replace(
                    state=DIFFERS,
                    distance=math.inf,
                    scale=1.0,
                    is_scalar=True,
                    why="None against a value" if side else "a value against None",
                    by=PARAMETER if given.value.requires_grad else "",
                )
    for side, alone in enumerate(lone if is_paired else ()):
        for n, text in alone.items():
            if text not in lone[1 - side].values():
                why = f"nothing against {text}" if side else f"{text} against nothing"
                found[n] = values[n]._replace(
                    state=DIFFERS, distance=math.inf, scale=1.0, why=why, by="scalar"
                )
    return found


def _quiet(values: Sequence[Apart]) -> tuple[Apart, ...]:
    """Return one value in place of all, which is as far apart and as coarse as any of them."""
    relative = noise = 0.0
    for value in values:
        if value.state == SAME and not value.is_scalar:
            noise = max(noise, value.noise)
            if value.distance and value.scale:
                relative = max(relative, value.distance / value.scale)
    return (Apart("", Side.OUTPUT, SAME, relative, 1.0, noise),) if noise else ()


def _golden_of(op: str, rows: Sequence[Row]) -> str:
    """Return the key of the golden's op if it is another one."""
    for row in rows:
        target, golden = row.pair[:2]
        if target is not None and golden is not None:
            key = "" if target.name == golden.name else op_in(golden.name)
            return "" if key == op else key
    return ""


def plain_facts(ops: Sequence[OpFacts]) -> list[Any]:
    """Return facts as JSON data, whose floats may be inf."""
    return [
        [
            op.op,
            [[*value[:1], value.side.value, *value[2:]] for value in op.values],
            op.call and [op.call.api.name, op.call.group, op.call.root, [[*peer] for peer in op.call.peers]],
            op.within,
            op.where,
            op.is_shifted,
            op.lacking,
            op.golden,
            op.agrees,
        ]
        for op in ops
    ]


def facts_from(plain: Sequence[Any]) -> list[OpFacts]:
    """Return the facts that ``plain_facts`` returned.

    Raises:
        LookupError, TypeError, ValueError: The data does not describe facts.
    """
    return [
        OpFacts(
            key,
            tuple(Apart(name, Side(side), *rest) for name, side, *rest in values),
            None if call is None else _call(*call),
            tuple(within),
            (0, 0),
            where,
            is_shifted,
            lacking,
            golden,
            agrees,
        )
        for key, values, call, within, where, is_shifted, lacking, golden, agrees in plain
    ]


def _call(api: str, group: Sequence[int], root: int | None, peers: Sequence[Sequence[Any]]) -> Call:
    return Call(apis()[api], tuple(group), root, tuple(Peer(int(rank), bool(sends)) for rank, sends in peers))

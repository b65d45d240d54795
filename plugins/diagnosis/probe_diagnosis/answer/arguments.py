"""Differences between the arguments of two calls of one API that are not paired with each other."""

from __future__ import annotations

from typing import NamedTuple

from probe_core.model import Kind, Side, Slot, Value
from probe_core.model.dtypes import kind, same
from probe_core.model.run import Run
from probe_diagnosis.answer.runs import Runs
from probe_diagnosis.timeline.devices import is_device
from probe_diagnosis.timeline.views import is_module, shown_scalar


class Argument(NamedTuple):
    """An argument that two calls were given differently.

    Attributes:
        place: Its side and path, such as ``input.2``.
        text: Both values.
        is_grave: True unless it is a whole number, such as a size, or one call has None, or nothing, in place
            of a tensor that is not trained.
        name: Its name in the signature; empty if it is not known.
        is_other_kind: True for tensors of which one is complex, say, and the other is not.
        given: The tensor that only one of the calls was given; None for none.
        lacks: The side of the call that was not given it.
    """

    place: str
    text: str
    is_grave: bool
    name: str = ""
    is_other_kind: bool = False
    given: Value | None = None
    lacks: int = 0


def api(op: str) -> str:
    """Return the name of the API or the class of the module of an op."""
    parts = op.split(".")
    return parts[-3] if len(parts) > 3 else op


def differing(runs: Runs, op: str, golden_op: str) -> list[Argument]:
    """Return the arguments that two calls were given differently: scalars, dtypes, those of one call only.

    Args:
        runs: Both runs.
        op: The key of the first call.
        golden_op: The key of the second call.
    """
    sides = _inputs(runs.both[0], op), _inputs(runs.both[1], golden_op)
    found: list[Argument] = []
    for place in dict.fromkeys([*sides[0], *sides[1]]):
        first, second = (side.get(place) for side in sides)
        texts = _text(first), _text(second)
        if texts[0] == texts[1] or all(value is None or is_device(value) for value in (first, second)):
            continue
        is_absent = [value is None or value.kind is Kind.NULL for value in (first, second)]
        if not any(is_absent):
            assert first is not None and second is not None
            if first.kind is second.kind is Kind.TENSOR and same(first.dtype, second.dtype):
                continue
        given = second if is_absent[0] else first
        is_untrained = given is not None and given.kind is Kind.TENSOR and not given.requires_grad
        is_whole = all(type(value.statistics.max) is int for value in (first, second) if value is not None)
        is_plain = (any(is_absent) and is_untrained) or is_whole
        is_other_kind = (
            first is not None
            and second is not None
            and first.kind is second.kind is Kind.TENSOR
            and kind(first.dtype) != kind(second.dtype)
        )
        alone = given if any(is_absent) and given is not None and given.kind is Kind.TENSOR else None
        text, name = f"{texts[0]} against {texts[1]}", runs.argument_name(op, place)
        found.append(Argument(place, text, not is_plain, name, is_other_kind, alone, int(not is_absent[0])))
    return found


def said(arguments: list[Argument]) -> str:
    """Return differing arguments as text."""
    return "; ".join(
        f"{one.name}, {one.place}: {one.text}" if one.name else f"{one.place}: {one.text}"
        for one in arguments
    )


def evidence_of(op: str, argument: Argument) -> dict[str, float | int | str]:
    """Return the evidence of an argument that differs."""
    found: dict[str, float | int | str] = {
        "argument": f"{op}.{argument.place}",
        "argument_values": argument.text,
    }
    return found | ({"argument_name": argument.name} if argument.name else {})


def _inputs(run: Run, op: str) -> dict[str, Value]:
    place = run.find(op)
    slots: tuple[Slot, ...] = run.record(place).slots if place is not None else ()
    inputs = [slot for slot in slots if slot.side is Side.INPUT]
    return {slot.name.removeprefix(f"{op}."): slot.value for slot in inputs} if not is_module(op) else {}


def _text(value: Value | None) -> str:
    if value is None:
        return "nothing"
    if value.kind is Kind.NULL:
        return "None"
    if value.kind is Kind.TENSOR:
        return f"a tensor of {value.dtype}"
    return shown_scalar(value)

"""Differences between the arguments of two calls of one API that are not paired with each other."""

from __future__ import annotations

from typing import NamedTuple

from probe_core.model import Kind, Side, Slot, Value
from probe_core.model.dtypes import get_dtype_kind, is_same_dtype
from probe_core.model.run import Run
from probe_core.store.names import is_module
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.timeline.compared_calls import format_scalar
from probe_diagnosis.timeline.devices import is_device


class ArgumentDifference(NamedTuple):
    """An argument in which two calls differ.

    Attributes:
        path: Its side and path in the record, such as ``input.2``.
        text: Both values.
        is_grave: False for an integer, such as a size, and if one call has None, or no value, instead of a tensor
            that is not trained.
        name: Its name in the signature; empty if it is not known.
        is_other_kind: True for two tensors whose dtypes are of different kinds, such as complex and floating point.
        lone_tensor: The tensor that only one of the calls received; None if there is none.
        lacking_side: The side of the call that did not receive it.
    """

    path: str
    text: str
    is_grave: bool
    name: str = ""
    is_other_kind: bool = False
    lone_tensor: Value | None = None
    lacking_side: int = 0


def compare_arguments(runs: ComparedRuns, op: str, golden_op: str) -> list[ArgumentDifference]:
    """Return the arguments in which two calls differ: scalars, dtypes, and arguments of one call only.

    Args:
        runs: Both runs.
        op: The key of the first call.
        golden_op: The key of the second call.
    """
    sides = _read_inputs(runs.both[0], op), _read_inputs(runs.both[1], golden_op)
    differences: list[ArgumentDifference] = []
    for path in dict.fromkeys([*sides[0], *sides[1]]):
        first, second = (side.get(path) for side in sides)
        texts = _format_value(first), _format_value(second)
        if texts[0] == texts[1] or all(value is None or is_device(value) for value in (first, second)):
            continue
        is_absent = [value is None or value.kind is Kind.NULL for value in (first, second)]
        if not any(is_absent):
            assert first is not None and second is not None
            if first.kind is second.kind is Kind.TENSOR and is_same_dtype(first.dtype, second.dtype):
                continue
        present_value = second if is_absent[0] else first
        is_untrained = (
            present_value is not None and present_value.kind is Kind.TENSOR and not present_value.requires_grad
        )
        is_whole = all(type(value.statistics.max) is int for value in (first, second) if value is not None)
        is_plain = (any(is_absent) and is_untrained) or is_whole
        is_other_kind = (
            first is not None
            and second is not None
            and first.kind is second.kind is Kind.TENSOR
            and get_dtype_kind(first.dtype) != get_dtype_kind(second.dtype)
        )
        lone_tensor = (
            present_value
            if any(is_absent) and present_value is not None and present_value.kind is Kind.TENSOR
            else None
        )
        text, name = f"{texts[0]} against {texts[1]}", runs.argument_name(op, path)
        differences.append(
            ArgumentDifference(path, text, not is_plain, name, is_other_kind, lone_tensor, int(not is_absent[0]))
        )
    return differences


def format_arguments(arguments: list[ArgumentDifference]) -> str:
    """Return differing arguments as text."""
    return "; ".join(
        f"{argument.name}, {argument.path}: {argument.text}" if argument.name else f"{argument.path}: {argument.text}"
        for argument in arguments
    )


def build_argument_evidence(op: str, argument: ArgumentDifference) -> dict[str, float | int | str]:
    """Return the evidence of an argument that differs."""
    evidence: dict[str, float | int | str] = {
        "argument": f"{op}.{argument.path}",
        "argument_values": argument.text,
    }
    return evidence | ({"argument_name": argument.name} if argument.name else {})


def _read_inputs(run: Run, op: str) -> dict[str, Value]:
    index = run.find(op)
    slots: tuple[Slot, ...] = run.record(index).slots if index is not None else ()
    inputs = [slot for slot in slots if slot.side is Side.INPUT]
    return {slot.name.removeprefix(f"{op}."): slot.value for slot in inputs} if not is_module(op) else {}


def _format_value(value: Value | None) -> str:
    if value is None:
        return "nothing"
    if value.kind is Kind.NULL:
        return "None"
    if value.kind is Kind.TENSOR:
        return f"a tensor of {value.dtype}"
    return format_scalar(value)

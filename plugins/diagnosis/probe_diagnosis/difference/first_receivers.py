"""The first receivers of values that differ: modules receive values before the calls within them do."""

from __future__ import annotations

from dataclasses import replace

from probe_core.model import Side
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.difference.walking import Walker
from probe_diagnosis.timeline.compared_calls import ComparedCall, ValueComparison


def name_first_receivers(walker: Walker) -> None:
    """Replace reported calls that receive differing values by the outermost modules that receive such values.

    The caller of that module is the code that is nearest to the cause. The replaced calls become consequences.
    """
    reported = walker.reported
    for index, node in enumerate(reported.first):
        receiver = _find_first_receiver(walker, node)
        if receiver is not node:
            reported.first[index] = receiver
            others = (key for key in reported.downstream if key != receiver.call.op)
            reported.downstream[:] = [node.call.op, *others]


def _find_first_receiver(walker: Walker, node: Node) -> Node:
    """Return the outermost module around a call that receives a value that differs; the call itself if none does."""
    calls = walker.cursor.calls
    if node.reason.cause is not CauseKind.RECEIVED or calls.is_backward[calls.numbers_by_key[node.call.op]]:
        return node
    for module in reversed(node.call.modules):
        number = calls.numbers_by_key.get(module)
        value = None if number is None else _find_received_value(walker, calls[number])
        if number is not None and value is not None:
            return replace(node, call=calls[number], reason=replace(node.reason, value=value))
    return node


def _find_received_value(walker: Walker, module: ComparedCall) -> ValueComparison | None:
    """Return the first input of a module that nothing before the module explains; None if there is none."""
    noise = walker.largest.noise[walker.cursor.calls.numbers_by_key[module.op]]
    before = walker.reported.get_multiple_at_entry(module.op)
    for value in module.inputs():
        is_known = (value.distance, value.scale) in walker.known_rounding.values
        is_beyond = value.measure_multiple(value.scale, noise) > max(1.0, value.jump * before)
        if value.side is Side.INPUT and is_beyond and not is_known:
            return value
    return None

"""Suspects for a value that no recorded call returned: earlier calls that only one run makes.

Calls that no list of a recorder contains, slices and saved values break the chain from a call to the value that is
computed from its result.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from probe_core.model import Kind, Side
from probe_core.model.run import Run
from probe_core.store.names import is_module
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.producers import find_start, is_received
from probe_diagnosis.answer.causes.unpaired_calls import get_key, select_surplus_calls
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.frames import parse_function
from probe_diagnosis.timeline.compared_calls import Basis
from probe_diagnosis.timeline.order import is_permuting


def list_earlier_surplus_calls(
    runs: ComparedRuns, node: Node, unpaired_keys: Sequence[Container[str]]
) -> list[list[str]]:
    """Return for each run the calls before a node that exceed the number of such calls of the other run."""
    calls: list[list[str]] = []
    for side, run in enumerate(runs.both):
        key = get_key(node.call, side)
        end = find_start(run, key) if node.reason.cause is CauseKind.RECEIVED else run.find(key)
        earlier = run.names()[: end or 0]
        calls.append([key for key in earlier if key in unpaired_keys[side] and not is_module(key)])
    return select_surplus_calls(calls)


def select_suspects(runs: ComparedRuns, node: Node, calls: Sequence[Sequence[str]]) -> tuple[list[list[str]], str]:
    """Return for each run the call that may have computed the differing value of a node, and a clause on its position.

    The nearest call of the function that calls the node is a suspect, if no recorded call receives its result. Of
    values that were compared by statistics, so is the first call that returns its input in another order.

    Args:
        runs: Both runs.
        node: A call with a differing value that no recorded call returned.
        calls: For each run, the earlier calls that only this run makes.
    """
    op = node.call.op
    suspects = [
        [key for key in keys if _is_unreceived_in_same_function(runs, node, key, side)][-1:]
        for side, keys in enumerate(calls)
    ]
    if any(suspects):
        return suspects, f"precedes {op} in the same function"
    if node.reason.value.basis is not Basis.STATISTICS:
        return [[], []], ""
    suspects = [[key for key in keys if is_permuting(key)][:1] for keys in calls]
    return suspects, f"returns values in another order, which statistics do not show, before {op}"


def _is_unreceived_in_same_function(runs: ComparedRuns, node: Node, key: str, side: int) -> bool:
    """Return True for a call below the function that calls a node, whose result no recorded call receives."""
    own, *outer = runs.list_own_frames(get_key(node.call, side), side) or [""]
    frames = runs.list_own_frames(key, side)
    place = len(frames) - len(outer) - 1
    is_same = bool(own) and place >= 0 and frames[place + 1 :] == outer
    if not is_same or parse_function(frames[place]) != parse_function(own):
        return False
    return _returns_tensor(runs.both[side], key) and not is_received(runs.both[side], key)


def _returns_tensor(run: Run, key: str) -> bool:
    """Return True if a call returns a tensor of several elements, unlike one that a program prints."""
    index = run.find(key)
    slots = run.record(index).slots if index is not None else ()
    outputs = [slot.value for slot in slots if slot.side is Side.OUTPUT and slot.value.kind is Kind.TENSOR]
    return any(set(value.shape or ()) - {1} for value in outputs)

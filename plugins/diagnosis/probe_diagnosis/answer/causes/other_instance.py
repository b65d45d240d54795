"""A call of another module: the differing parameter of a call belongs to another module of the same run."""

from __future__ import annotations

from probe_core.model import Side, Value
from probe_core.model.run import Run
from probe_core.store.names import is_backward, is_module
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.producers import has_same_fingerprint
from probe_diagnosis.answer.causes.traced_call import GOLDEN, SIDES, TARGET, TracedCall
from probe_diagnosis.answer.causes.unpaired_calls import get_key, rename_row
from probe_diagnosis.difference.differing_values import format_difference
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.timeline.recorded import find_value


def trace_other_instance(runs: ComparedRuns, node: Node) -> TracedCall | None:
    """Return the call of a module in place of another one, if the differing parameter shows it; else None.

    The parameter of one run must be recorded in the other run as that of another module. If the first run has it in a
    second module as well, it may be a copy, and the finding is not certain.

    Args:
        runs: Both runs.
        node: A call that receives a parameter that differs.
    """
    if node.reason.cause is not CauseKind.RECEIVED or is_backward(node.call.op):
        return None
    keys = [get_key(node.call, side) for side in (TARGET, GOLDEN)]
    modules = [_get_module(runs, key, side) for side, key in enumerate(keys)]
    rows = [rename_row(node.reason.value.row, node.call.op, key) for key in keys]
    values = [find_value(run, key, row) for run, key, row in zip(runs.both, keys, rows)]
    for side in (TARGET, GOLDEN):
        value, other_side = values[side], 1 - side
        if value is None or value.statistics.max == value.statistics.min or not all(modules):
            continue  # a parameter whose elements are equal, such as a bias of zeros, does not identify a module
        if not _has_parameter(runs.both[side], modules[side], value):
            continue
        holder = _find_holder(runs.both[other_side], value, get_path(modules[other_side]))
        if holder and not _find_holder(runs.both[side], value, get_path(modules[side])):
            return _describe(runs, node, modules[TARGET], holder, side)
    return None


def get_path(module: str) -> tuple[str, ...]:
    """Return the names of a module and of those around it, from the key of its call."""
    return tuple(module.split(".")[1:-3])


def _get_module(runs: ComparedRuns, key: str, side: int) -> str:
    return key if is_module(key) else next(iter(runs.list_modules(key, side)), "")


def _has_parameter(run: Run, module: str, value: Value) -> bool:
    """Return True if a module has a parameter of the same dtype, shape, checksum and statistics."""
    index = run.find(module)
    slots = run.record(index).slots if index is not None else ()
    return any(slot.side is Side.PARAMETERS and has_same_fingerprint(slot.value, value) for slot in slots)


def _find_holder(run: Run, value: Value, path: tuple[str, ...]) -> str:
    """Return the first call of a module at another path that has a parameter of the same value; empty for none."""
    modules = (key for key in run.names() if is_module(key) and not is_backward(key) and get_path(key) != path)
    return next((key for key in modules if _has_parameter(run, key, value)), "")


def _describe(runs: ComparedRuns, node: Node, module: str, holder: str, side: int) -> TracedCall:
    """Return the finding on the outermost call of the module that was replaced.

    Args:
        runs: Both runs.
        node: The call that receives a parameter that differs.
        module: The module around it, in the target.
        holder: The other module, in the other run, that has the parameter.
        side: The run that the parameter is from.
    """
    path, other_path = get_path(module), get_path(holder)
    depth = next((n for n, names in enumerate(zip(path, other_path)) if names[0] != names[1]), len(path) - 1)
    around = [module, *runs.list_modules(module)]
    replaced = next((key for key in around if get_path(key) == path[: depth + 1]), "")
    clause = (
        f"is a call of another module than in the golden: the {SIDES[side]}'s parameter is that of {holder} in the "
        f"{SIDES[1 - side]}"
    )
    statement = Statement(clause, "", format_difference(node.reason.value))
    line = runs.find_line(replaced) if replaced else runs.find_entering_line(module)
    return TracedCall(replaced or module, TARGET, CauseKind.RECEIVED, statement, {"parameter_of": holder}, line)

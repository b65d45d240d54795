"""Calls with different arguments or in another dtype."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from probe_core.model import Reason, Side
from probe_core.model.answers import Finding
from probe_core.model.dtypes import get_dtype_kind, is_same_dtype
from probe_core.store.names import get_api_name, is_backward, is_module
from probe_diagnosis.answer.causes.argument_differences import (
    ArgumentDifference,
    build_argument_evidence,
    compare_arguments,
    format_arguments,
)
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.producers import list_output_dtypes, receives_tensor
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reasons import (
    CauseKind,
    DivergenceReason,
    OutputAgreement,
)
from probe_diagnosis.difference.search import find_other_argument
from probe_diagnosis.timeline.compared_calls import (
    Basis,
    ComparedCall,
    DifferenceKind,
    ValueComparison,
    ValueState,
)
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.recorded import find_value


def find_altered_calls(facts: RankFacts, limit: ComparedCall | None) -> Iterator[Node]:
    """Yield calls before the op ``limit`` with another argument or dtype, whose values agree."""
    calls, table = facts.ops, facts.ops.table
    is_recast = np.zeros(len(table), bool)
    is_recast[[*table.dtypes]] = True
    recasts = calls.has_any(is_recast)
    computes = ~recasts & calls.has_any(table.lines["noise"] > 0)
    first = int(computes.argmax()) if computes.any() else len(calls)
    has_named_dtype = False
    for number in np.flatnonzero(calls.has_differing_argument | recasts).tolist():
        if limit is not None and number >= calls.numbers_by_key[limit.op]:
            return
        op = calls[number]
        outputs = list(op.outputs())
        returned = _classify_outputs(outputs)
        argument = find_other_argument(op)
        if argument is not None:
            value = next(iter(outputs), argument)
            reason = DivergenceReason(CauseKind.ALTERED_CALL, value, argument=argument, output_agreement=returned)
            yield Node(facts.rank, op, reason, 0, number)
        elif recasts[number] and not has_named_dtype:
            has_named_dtype = True  # in a run of another dtype from its beginning, no call is the one that changed it
            if first < number:
                recast = next(value for value in op.values if value.dtypes)
                reason = DivergenceReason(CauseKind.ALTERED_CALL, recast, output_agreement=returned)
                yield Node(facts.rank, op, reason, 0, number)


def find_altered_calls_after(facts: RankFacts, first: ComparedCall) -> Iterator[Node]:
    """Yield calls after the op ``first`` with another argument, independent of their values."""
    calls = facts.ops
    for number in np.flatnonzero(calls.has_differing_argument).tolist():
        argument = find_other_argument(calls[number]) if number > calls.numbers_by_key[first.op] else None
        if argument is not None:
            reason = DivergenceReason(CauseKind.ALTERED_CALL, argument, argument=argument)
            yield Node(facts.rank, calls[number], reason, 0, number)


def _classify_outputs(outputs: Sequence[ValueComparison]) -> OutputAgreement:
    """Return how well the outputs of a call agree."""
    if any(value.state == ValueState.DIFFERS for value in outputs):
        return OutputAgreement.DIFFERS
    if not outputs or any(value.state == ValueState.UNJUDGED for value in outputs):
        return OutputAgreement.NOT_COMPARED
    if any(value.is_excused for value in outputs):
        return OutputAgreement.NEAR_REFERENCE
    if any(value.has_masked_difference for value in outputs):
        return OutputAgreement.AGREES_UNMASKED
    by_statistics = any(value.basis == Basis.STATISTICS for value in outputs)
    return OutputAgreement.AGREES_IN_STATISTICS if by_statistics else OutputAgreement.AGREES


def find_unpaired_calls(facts: RankFacts, runs: ComparedRuns, *, with_arguments: bool) -> Iterator[Finding]:
    """Yield the calls of both runs that are unpaired because of another dtype or argument.

    Args:
        facts: The facts about the rank.
        runs: Both runs.
        with_arguments: True to include calls with another argument.
    """
    waiting: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for key in facts.golden_only:
        waiting.setdefault(_get_pairing_key(runs, key, 1), []).append(key)
    for key in facts.target_only:
        others = waiting.get(_get_pairing_key(runs, key, 0))
        if not others or is_module(key):
            continue
        golden = others.pop(0)
        dtypes = list_output_dtypes(runs.both[0], key), list_output_dtypes(runs.both[1], golden)
        evidence: dict[str, float | int | str] = {}
        if all(len(item) == 1 and get_dtype_kind(item[0]) == "float" for item in dtypes) and not is_same_dtype(
            dtypes[0][0], dtypes[1][0]
        ):
            detail = f"computes in {dtypes[0][0]} where the golden's {golden} computes in {dtypes[1][0]}"
            evidence = {"target_dtype": dtypes[0][0], "golden_dtype": dtypes[1][0]}
        else:
            arguments = [
                item
                for item in ([] if is_backward(key) else compare_arguments(runs, key, golden))
                if item.is_grave and not _is_received_in_module(facts, runs, key, golden, item)
            ]
            if not (arguments and with_arguments) or any(item.is_other_kind for item in arguments):
                continue
            detail = f"was called with different arguments than the golden's {golden} ({format_arguments(arguments)})"
            evidence = build_argument_evidence(key, arguments[0])
        modules = runs.list_modules(key)
        yield Finding(key, "", Reason(CauseKind.ALTERED_CALL.value, detail), evidence, "", modules,
                      runs.find_line(key), rank=facts.rank)  # fmt: skip


def _is_received_in_module(
    facts: RankFacts, runs: ComparedRuns, target: str, golden: str, argument: ArgumentDifference
) -> bool:
    """Return True if another call in the same module receives the tensor that a call did not receive."""
    if argument.lone_tensor is None:
        return False
    side = argument.lacking_side
    modules = runs.list_modules(golden if side else target, side)
    others = (
        key
        for key in (facts.golden_only if side else facts.target_only)
        if not is_module(key) and runs.list_modules(key, side) == modules
    )
    return any(receives_tensor(runs.both[side], key, argument.lone_tensor) for key in others)


def _get_pairing_key(runs: ComparedRuns, op: str, side: int) -> tuple[str, tuple[str, ...]]:
    """Return the API of a call, and the modules around it."""
    return get_api_name(op), runs.list_modules(op, side)


def add_similar_calls(facts: RankFacts, causes: Sequence[Finding], nodes: Sequence[Node]) -> list[Finding]:
    """Return the causes; a cause by an argument names the other calls that differ in the same argument."""
    whole: list[Finding] = []
    for cause, node in zip(causes, nodes):
        argument = node.reason.argument
        if cause.reason.code == CauseKind.ARGUMENT.value and argument is not None:
            wanted = get_api_name(node.call.op), argument.row.removeprefix(node.call.op), argument.evidence
            same = tuple(
                op.op
                for op in facts.ops.iterate_with_differing_argument()
                if op.op != node.call.op and get_api_name(op.op) == wanted[0]
                for value in op.arguments()
                if (value.row.removeprefix(op.op), value.evidence) == wanted[1:]
            )
            cause = replace(cause, same=same)
        whole.append(cause)
    return whole


def is_same_axis(runs: ComparedRuns, node: Node) -> bool:
    """Return True for a call whose other argument counts the same axis from the end, such as 3 against -1."""
    argument, op = node.reason.argument, node.call.op
    index = runs.both[0].find(op)
    if argument is None or index is None:
        return False
    golden = argument.row.replace(op, node.call.golden_op or op, 1)
    values = (
        find_value(runs.both[0], op, argument.row),
        find_value(runs.both[1], node.call.golden_op or op, golden),
    )
    axes = [value.statistics.max for value in values if value is not None]
    shapes = (slot.value.shape for slot in runs.both[0].record(index).slots if slot.side is Side.INPUT)
    count = len(next((shape for shape in shapes if shape is not None), ()))
    if len(axes) != 2 or not count:
        return False
    first, second = axes
    if type(first) is not int or type(second) is not int:
        return False
    return min(first, second) < 0 <= max(first, second) and abs(first - second) == count


def is_harmless(node: Node) -> bool:
    """Return True for a call that differs only in an argument that one run lacks, or in what it masks."""
    reason = node.reason
    argument = reason.argument
    if reason.cause is not CauseKind.ALTERED_CALL or argument is None or argument.basis == Basis.PARAMETER:
        return False
    is_none = argument.kind is DifferenceKind.NONE and reason.output_agreement in (
        OutputAgreement.AGREES,
        OutputAgreement.AGREES_IN_STATISTICS,
    )
    return is_none or reason.output_agreement is OutputAgreement.AGREES_UNMASKED

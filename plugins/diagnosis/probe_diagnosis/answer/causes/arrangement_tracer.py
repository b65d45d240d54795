"""Search for the call that caused a difference that the statistics of inputs do not show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from probe_core.store.names import is_module
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.producers import find_producer, find_producers, has_uninformative_output
from probe_diagnosis.answer.causes.traced_call import (
    GOLDEN,
    TARGET,
    TracedCall,
    build_call_evidence,
    describe_output,
    describe_unpaired_call,
)
from probe_diagnosis.answer.causes.unpaired_calls import get_key, has_unequal_call_counts, select_surplus_calls
from probe_diagnosis.difference.differing_values import find_first_differing, format_difference
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reasons import CauseKind, Evidence
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.compared_calls import ComparedCall, ValueComparison, ValueState
from probe_diagnosis.timeline.order import is_arranging, is_move, is_storage
from probe_diagnosis.timeline.rank_facts import RankFacts


class ArrangementTracer:
    """Search for a call that arranged values differently in the two runs.

    Args:
        facts: The facts about the rank.
        runs: Both runs.
    """

    def __init__(self, facts: RankFacts, runs: ComparedRuns) -> None:
        self._facts = facts
        self._runs = runs
        self._unpaired_keys = facts.target_only, facts.golden_only

    def trace_difference(self, node: Node) -> TracedCall | None:
        """Return the call that caused a difference which the statistics of the inputs do not show, or None.

        The call must rearrange values or return no floating-point values, so that the statistics of its outputs can
        agree although the values differ.
        """
        upstream_keys = [list(self._iterate_upstream_calls(side, node.call)) for side in (TARGET, GOLDEN)]
        surplus_calls = select_surplus_calls(
            [[key for key in keys if key in unpaired] for keys, unpaired in zip(upstream_keys, self._unpaired_keys)]
        )
        traced = self._trace_altered_arrangement(
            node, upstream_keys[TARGET], must_be_upstream=any(surplus_calls)
        ) or self._trace_unpaired_arrangement(node, surplus_calls)
        if traced is None and is_move(node.call.op):
            return self._trace_permuted_producer(node)
        return traced

    def _trace_altered_arrangement(
        self, node: Node, upstream_keys: Sequence[str], *, must_be_upstream: bool
    ) -> TracedCall | None:
        """Return the nearest call of the target with a different argument, or None.

        Args:
            node: The call that differs.
            upstream_keys: The calls that produced the inputs of the differing call, nearest first.
            must_be_upstream: True if no other call of the target may be returned.
        """
        op = node.call.op
        arguments = self._find_arrangement_arguments(node.call, upstream_keys)
        key = next((key for key in upstream_keys if key in arguments), "")
        consequence_clause = f"{op}, which receives a value computed from it,"
        if not key and not must_be_upstream:
            key, consequence_clause = next(iter(arguments), ""), f"after it, {op}"
        if not key:
            return None
        argument = arguments[key]
        action_clause = (
            f"was called with a different argument ({format_difference(argument)}), "
            "which the statistics of its outputs do not show"
        )
        statement = describe_output(node.reason.value, f"{action_clause}; {consequence_clause}")
        evidence: Evidence = {"argument": argument.row, "argument_values": argument.evidence}
        return TracedCall(key, TARGET, CauseKind.ARGUMENT, statement, evidence)

    def _trace_unpaired_arrangement(self, node: Node, calls: list[list[str]]) -> TracedCall | None:
        """Return the nearest of the calls that only one run makes; None if there are none."""
        if not any(calls):
            return None
        side = TARGET if calls[TARGET] else GOLDEN
        key = calls[side][0]
        clause = describe_unpaired_call(
            side,
            calls[GOLDEN][:1] if all(calls) else (),
            is_in_both=not has_unequal_call_counts(self._runs, key, side),
        )
        statement = describe_output(
            node.reason.value, f"{clause}, and {node.call.op}, which receives a value computed from it,"
        )
        evidence = build_call_evidence([keys[:1] for keys in calls])
        return TracedCall(key, side, CauseKind.ONE_SIDED, statement, evidence)

    def _find_arrangement_arguments(
        self, facts: ComparedCall, upstream_keys: Sequence[str]
    ) -> dict[str, ValueComparison]:
        """Return the first differing argument of each call before an op.

        Only calls that rearrange values or are in ``upstream_keys`` count.
        """
        arguments: dict[str, ValueComparison] = {}
        end = self._facts.ops.numbers_by_key[facts.op]
        for call in self._facts.ops.iterate_with_differing_argument():
            if self._facts.ops.numbers_by_key[call.op] >= end:
                break
            if call.op in upstream_keys or is_arranging(call.op):
                argument = None if call.is_shifted else find_first_differing(call.arguments(), 0.0)
                if argument is not None and not is_storage(argument.row):
                    arguments[call.op] = argument
        return arguments

    def _iterate_upstream_calls(self, side: int, facts: ComparedCall) -> Iterator[str]:
        """Yield the calls of a run that produced the inputs of an op, nearest first.

        The search continues upstream of a call only if the call rearranges values or its statistics identify values
        poorly.
        """
        run = self._runs.both[side]
        frontier = [get_key(facts, side)]
        visited: set[str] = set()
        for _ in range(limits().max_followed_calls):
            producer_keys = (key for op in frontier for key in find_producers(run, op).values())
            new_keys = dict.fromkeys(key for key in producer_keys if key not in visited)
            visited.update(new_keys)
            frontier = [key for key in new_keys if is_arranging(key) or has_uninformative_output(run, key)]
            yield from (key for key in frontier if not is_module(key))

    def _trace_permuted_producer(self, node: Node) -> TracedCall | None:
        """Return the producer of the input of a call that only moves values; None if there is no producer.

        The statistics of the input agree and those of the output differ. A call that only moves values cannot cause
        this, so the values of the input already differed.
        """
        facts = node.call
        inputs = [value for value in facts.inputs() if value.state != ValueState.UNJUDGED]
        op = find_producer(self._runs.both[TARGET], facts.op, inputs[0].row) if inputs else ""
        if not op or op in self._facts.target_only or node.reason.inputs.largest_multiple > 1:
            return None
        calls = self._facts.ops
        golden = calls.golden_ops.get(calls.numbers_by_key[op], "") if op in calls.numbers_by_key else ""
        clause = (
            f"returns values that agree in their statistics, but not element by element: {facts.op}, "
            "which only moves them,"
        )
        statement = describe_output(node.reason.value, clause)
        return TracedCall(op, TARGET, CauseKind.ORDER, statement, {"golden_op": golden} if golden else {})

"""Search for the calls that caused a difference that no earlier difference explains."""

from __future__ import annotations

from dataclasses import replace

from probe_core.model.answers import Finding
from probe_core.store.names import get_api_name, is_backward, is_module
from probe_diagnosis.answer.causes.argument_differences import (
    ArgumentDifference,
    build_argument_evidence,
    compare_arguments,
    format_arguments,
)
from probe_diagnosis.answer.causes.arrangement_tracer import ArrangementTracer
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.findings import replace_statement, strip_numbers
from probe_diagnosis.answer.causes.moved_calls import find_differing_place, pair_moved_calls
from probe_diagnosis.answer.causes.other_instance import trace_other_instance
from probe_diagnosis.answer.causes.producers import find_producer, find_start, receives_tensor
from probe_diagnosis.answer.causes.traced_call import (
    GOLDEN,
    SIDES,
    TARGET,
    TracedCall,
    build_call_evidence,
    describe_output,
    describe_unpaired_call,
    format_calls,
)
from probe_diagnosis.answer.causes.unpaired_calls import (
    get_key,
    has_unequal_call_counts,
    list_neighbors,
    list_preceding_calls,
    rename_row,
    select_surplus_calls,
)
from probe_diagnosis.answer.causes.unseen_producers import list_earlier_surplus_calls, select_suspects
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reason_statement import build_statement
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.order import is_arranging
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.recorded import find_value


class CallTracer:
    """Search for the calls that caused a difference which no earlier difference explains.

    The methods look for one kind of call each and return it with its statement.

    Args:
        facts: The facts about the rank.
        runs: Both runs.
    """

    def __init__(self, facts: RankFacts, runs: ComparedRuns) -> None:
        self._facts = facts
        self._runs = runs
        self._unpaired_keys = facts.target_only, facts.golden_only
        self._arrangement_tracer = ArrangementTracer(facts, runs)

    def trace_cause(self, cause: Finding, node: Node) -> Finding:
        """Return the cause.

        If no recorded call produced the differing values, return a cause that names the unpaired call that returned
        them.
        """
        reason = node.reason
        if reason.cause is CauseKind.INTRODUCED and reason.inputs.not_compared:
            traced = self._trace_unaligned_inputs(node)
            if traced is not None:
                return self._move_cause(cause, node, traced)
        if reason.cause is CauseKind.INTRODUCED and reason.inputs.by_statistics and not reason.replaces:
            traced = self._arrangement_tracer.trace_difference(node)
            if traced is not None:
                return self._move_cause(cause, node, traced)
        if reason.replaces:
            return self._trace_region(cause, node)
        instance = trace_other_instance(self._runs, node)
        if instance is not None:
            return self._move_cause(cause, node, instance)
        producers = self._find_unpaired_producers(node) if reason.cause is CauseKind.RECEIVED else [[], []]
        moved = self._trace_order(cause, node, producers)
        if moved is not None:
            return moved
        traced = self._trace_unpaired_call(node, producers)
        if traced is not None:
            return self._move_cause(cause, node, traced)
        return self._suspect_earlier_call(cause, node)

    def _suspect_earlier_call(self, cause: Finding, node: Node) -> Finding:
        """Return the cause for an op with a differing value that no recorded call returned.

        If only one run makes an earlier call that may have computed the value, the cause names that call.
        """
        reason = node.reason
        is_module_difference = reason.cause is CauseKind.INTRODUCED and is_module(node.call.op)
        is_known = reason.phases is not None or bool(reason.changed_call) or is_backward(node.call.op)
        if is_known or not (reason.cause is CauseKind.RECEIVED or is_module_difference):
            return cause
        if not is_module_difference and any(self._find_producers(node)):
            return cause
        calls = list_earlier_surplus_calls(self._runs, node, self._unpaired_keys)
        if not any(calls):
            return cause
        node = replace(node, reason=replace(reason, is_unexplained=True))
        suspects, clause = select_suspects(self._runs, node, calls)
        if any(suspects):
            return self._move_cause(cause, node, self._choose_call(node, suspects, clause))
        return replace_statement(cause, build_statement(node.reason))

    def _trace_order(self, cause: Finding, node: Node, producers: list[list[str]]) -> Finding | None:
        """Return the cause for an op that one run calls before, and the other after, a call that returns its input.

        Args:
            cause: The finding on the op.
            node: The op.
            producers: For each run, the unpaired call that returned the differing input, or an empty list.
        """
        if all(producers) or not any(producers):
            return None
        side = TARGET if producers[TARGET] else GOLDEN
        producer = producers[side][0]
        counterparts = dict(pair_moved_calls(self._facts))
        if side == GOLDEN:
            counterparts = {golden: target for target, golden in counterparts.items()}
        counterpart = counterparts.get(producer, "")
        other_run = self._runs.both[1 - side]
        index, op_index = other_run.find(counterpart), find_start(other_run, get_key(node.call, 1 - side))
        if index is None or op_index is None or index < op_index:
            return None
        anchor, places = (producer, ("after", "before")) if side == TARGET else (counterpart, ("before", "after"))
        clause = f"is called {places[0]} {anchor} in the target and {places[1]} it in the golden, and "
        moved = replace_statement(cause, build_statement(node.reason).prepend(clause), CauseKind.ORDER.value)
        return replace(moved, evidence={**moved.evidence, "anchor": anchor})

    def _move_cause(self, cause: Finding, node: Node, traced: TracedCall) -> Finding:
        """Return a copy of the cause that names another call. The differing call becomes the first consequence."""
        evidence = {name: value for name, value in cause.evidence.items() if name != "golden_op"}
        return replace(
            replace_statement(cause, traced.statement, traced.cause.value),
            op=traced.op,
            row="",
            modules=self._runs.list_modules(traced.op, traced.side),
            evidence=evidence | traced.evidence,
            where=traced.line or self._runs.find_line(traced.op, traced.side) or cause.where,
            consequences=(node.call.op, *(op for op in cause.consequences if op != traced.op)),
            consequence_count=cause.consequence_count + (traced.op not in cause.consequences),
        )

    def _trace_unpaired_call(self, node: Node, producers: list[list[str]]) -> TracedCall | None:
        """Return the unpaired call that the differing values of an op come from, or that precedes it."""
        op, reason = node.call.op, node.reason
        is_module_difference = reason.cause is CauseKind.INTRODUCED and is_module(op)
        if reason.cause is not CauseKind.RECEIVED and not is_module_difference:
            return None
        if not is_module_difference:
            is_same_api = all(producers) and len({strip_numbers(keys[0]) for keys in producers}) == 1
            if is_same_api and not self._compare_arguments(producers):
                return self._trace_counterparts(node, (producers[TARGET][0], producers[GOLDEN][0]))
            if any(producers):
                return self._choose_call(node, producers, f"returns the value that {op} receives")
            receiver = self._trace_receiver(node)
            if receiver is not None:
                return receiver
        preceding: list[list[str]] = []
        for side, run in enumerate(self._runs.both):
            key = get_key(node.call, side)
            index = run.find(key) if is_module_difference else find_start(run, key)
            preceding.append(list_preceding_calls(run, index, self._unpaired_keys[side]))
        if not any(preceding):
            return None
        node = replace(node, reason=replace(reason, is_unexplained=True))
        return self._choose_call(node, preceding, f"directly precedes {op}")

    def _trace_unaligned_inputs(self, node: Node) -> TracedCall | None:
        """Return the call upstream of an op, in calls that could not be aligned, at which the runs part; else None."""
        op, golden = node.call.op, node.reason.replaces or get_key(node.call, GOLDEN)
        are_unpaired = op in self._unpaired_keys[TARGET] and golden in self._unpaired_keys[GOLDEN]
        if not are_unpaired or strip_numbers(op) != strip_numbers(golden):
            return None
        traced = self._trace_counterparts(node, (op, golden))
        return None if traced.op == op else traced

    def _trace_counterparts(self, node: Node, keys: tuple[str, str]) -> TracedCall:
        """Return the first call upstream of an op at which unpaired calls of the two runs part.

        Args:
            node: The op that differs.
            keys: The calls of the same API that returned the differing input in the target and in the golden.
        """
        place, producers = self._find_other_input(keys)
        for _ in range(limits().max_followed_calls):
            are_unpaired = all(key in unpaired for key, unpaired in zip(producers, self._unpaired_keys))
            if not are_unpaired or strip_numbers(producers[TARGET]) != strip_numbers(producers[GOLDEN]):
                break
            keys = producers
            place, producers = self._find_other_input(keys)
        if not place and (arguments := compare_arguments(self._runs, *keys)):
            clause = f"was called with different arguments ({format_arguments(arguments)})"
            statement = Statement(clause, f", and {node.call.op} receives a value that is computed from its result")
            evidence = {"golden_op": keys[GOLDEN], **build_argument_evidence(keys[TARGET], arguments[0])}
            return TracedCall(keys[TARGET], TARGET, CauseKind.ARGUMENT, statement, evidence)
        lone_calls = [key if key in unpaired else "" for key, unpaired in zip(producers, self._unpaired_keys)]
        clause = (
            "receives values that differ"
            if place
            else "returns values that differ, although its inputs agree in their statistics"
        )
        if any(lone_calls) and strip_numbers(producers[TARGET]) != strip_numbers(producers[GOLDEN]):
            side = GOLDEN if lone_calls[GOLDEN] else TARGET
            clause += f", which {lone_calls[side]} returns in the {SIDES[side]} only"
        differing = self._describe_place(keys, place or find_differing_place(self._runs, keys, self._facts.ops.noise))
        statement = Statement(clause, f", and {node.call.op} receives a value that is computed from it", differing)
        cause = CauseKind.RECEIVED if place else CauseKind.INTRODUCED
        return TracedCall(keys[TARGET], TARGET, cause, statement, {"golden_op": keys[GOLDEN]})

    def _find_other_input(self, keys: tuple[str, str]) -> tuple[str, tuple[str, str]]:
        """Return the first input that differs between two calls, and the call that returned it in each run.

        The texts are empty if no input differs, and for an unknown call.
        """
        place = find_differing_place(self._runs, keys, self._facts.ops.noise, among_inputs=True)
        if not place:
            return "", ("", "")
        target, golden = (find_producer(run, key, f"{key}.{place}") for run, key in zip(self._runs.both, keys))
        return place, (target, golden)

    def _describe_place(self, keys: tuple[str, str], place: str) -> str:
        """Return the shapes, or else the norms, of the values at a place of two calls."""
        target, golden = (find_value(run, key, f"{key}.{place}") for run, key in zip(self._runs.both, keys))
        if target is None or golden is None or target.shape is None or golden.shape is None:
            return place
        if target.shape != golden.shape:
            return f"{place}: shape {[*target.shape]} against {[*golden.shape]}"
        return f"{place}: norm {target.statistics.norm} against {golden.statistics.norm}"

    def _choose_call(self, node: Node, calls: list[list[str]], position_clause: str) -> TracedCall:
        """Return the last of ``calls`` in place of the differing call.

        Args:
            node: The call that differs.
            calls: For the target and the golden, the calls that lead to the differing call.
            position_clause: A clause on the position of these calls.
        """
        arguments = self._compare_arguments(calls)
        if not arguments and all(calls):
            surplus_calls = select_surplus_calls(calls)
            calls = surplus_calls if any(surplus_calls) else calls
        side = TARGET if calls[TARGET] else GOLDEN
        op = calls[side][-1]
        module = node.call.modules[0] if node.call.modules else ""
        if module and module not in self._runs.list_modules(op, side):
            position_clause = f"{position_clause} (in {module})"
        evidence = build_call_evidence(calls)
        if arguments:
            clause = f"was called with different arguments ({format_arguments(arguments)}), and {position_clause}"
            evidence |= build_argument_evidence(op, arguments[0])
        elif not has_unequal_call_counts(self._runs, op, side):
            clause = f"{position_clause}, but not in the {SIDES[1 - side]}"
        else:
            replaced = calls[GOLDEN] if all(calls) else ()
            clause = f"{describe_unpaired_call(side, replaced, is_in_both=False)}, and {position_clause}"
        statement = build_statement(node.reason).prepend(f"{clause}; {node.call.op} ")
        return TracedCall(op, side, CauseKind.ARGUMENT if arguments else CauseKind.ONE_SIDED, statement, evidence)

    def _compare_arguments(self, calls: list[list[str]]) -> list[ArgumentDifference]:
        """Return the arguments that differ between the last calls, if both runs call the same API there."""
        if not all(calls) or get_api_name(calls[TARGET][-1]) != get_api_name(calls[GOLDEN][-1]):
            return []
        return compare_arguments(self._runs, calls[TARGET][-1], calls[GOLDEN][-1])

    def _find_unpaired_producers(self, node: Node) -> list[list[str]]:
        """Return for each run the unpaired call that returned the differing input of the op, or an empty list."""
        return [
            [producer] if producer in self._unpaired_keys[side] else []
            for side, producer in enumerate(self._find_producers(node))
        ]

    def _find_producers(self, node: Node) -> list[str]:
        """Return for each run the call that returned the differing input of the op; empty if none is found."""
        keys = [get_key(node.call, side) for side in (TARGET, GOLDEN)]
        rows = [rename_row(node.reason.value.row, node.call.op, key) for key in keys]
        return [find_producer(run, key, row) for run, key, row in zip(self._runs.both, keys, rows)]

    def _trace_receiver(self, node: Node) -> TracedCall | None:
        """Return the first unpaired call that receives the same value as the op in the other run; else None.

        Such a call may have changed a gradient in place, which no recorded output shows.
        """
        for side in (TARGET, GOLDEN):
            key = self._find_receiver(node, side)
            if key is None:
                continue
            clause = f"receives the value that {get_key(node.call, 1 - side)} receives in the {SIDES[1 - side]}"
            if has_unequal_call_counts(self._runs, key, side):
                clause = f"{describe_unpaired_call(side, is_in_both=False)}, and {clause}"
            statement = build_statement(node.reason).prepend(f"{clause}; {node.call.op} ")
            return TracedCall(key, side, CauseKind.ONE_SIDED, statement, {f"{SIDES[side]}_only": key})
        return None

    def _find_receiver(self, node: Node, side: int) -> str | None:
        """Return the first unpaired call of a run that receives the same value as the op in the other run.

        The call must follow the backward pass, and must not only move values.
        """
        run, other_op = self._runs.both[side], get_key(node.call, 1 - side)
        row = rename_row(node.reason.value.row, node.call.op, other_op)
        value = find_value(self._runs.both[1 - side], other_op, row)
        op_index = run.find(get_key(node.call, side))
        last_backward_index = next((n for n in range(op_index or 0, -1, -1) if is_backward(run.names()[n])), None)
        if value is None or op_index is None or last_backward_index is None:
            return None
        if value.statistics.max == value.statistics.min:
            return None
        for key in self._unpaired_keys[side]:
            index = run.find(key)
            is_between = index is not None and last_backward_index < index < op_index
            if not is_between or is_module(key) or is_arranging(key):
                continue
            if receives_tensor(run, key, value):
                return key
        return None

    def _trace_region(self, cause: Finding, node: Node) -> Finding:
        """Return the cause for an op in a region that does not line up: the unpaired calls around the op."""
        op, reason = node.call.op, node.reason
        calls = select_surplus_calls(
            [
                list_neighbors(self._runs.both[side], key, self._unpaired_keys[side])
                for side, key in enumerate((op, reason.replaces))
            ]
        )
        if op in calls[TARGET] and calls[GOLDEN]:
            renamed_reason = replace(reason, replaces=format_calls(calls[GOLDEN]))
            return replace_statement(cause, build_statement(renamed_reason))
        if not any(calls):
            return cause
        side = TARGET if calls[TARGET] else GOLDEN
        key = calls[side][-1]
        clause = describe_unpaired_call(
            side,
            calls[GOLDEN] if all(calls) else (),
            is_in_both=not has_unequal_call_counts(self._runs, key, side),
        )
        statement = describe_output(reason.value, f"{clause}, next to {op}, which")
        return self._move_cause(cause, node, TracedCall(key, side, CauseKind.ONE_SIDED, statement))

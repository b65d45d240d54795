"""Values without a recorded producer, traced back to calls that only one run made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from probe_core.model.answers import Finding
from probe_diagnosis.answer.arguments import (
    ArgumentDifference,
    build_argument_evidence,
    compare_arguments,
    format_arguments,
    get_api_name,
)
from probe_diagnosis.answer.findings import replace_statement, strip_numbers
from probe_diagnosis.answer.producers import find_producer, find_producers, has_uninformative_output, receives_tensor
from probe_diagnosis.answer.runs import ComparedRuns
from probe_diagnosis.difference.reasons import Cause, describe_values, find_first_differing, format_difference
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.difference.walking import Node
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.order import is_arranging, is_backward, is_move, is_storage
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.recorded import find_value
from probe_diagnosis.timeline.views import UNJUDGED, CallView, Difference, is_module

MAX_NAMED_CALLS = 6
"""Number of calls in one run only that a finding names."""

SIDES = ("target", "golden")
"""Names of both runs."""


class CallTracer:
    """Search for the calls behind values that differ without an earlier difference.

    Args:
        facts: The facts about the rank.
        runs: Both runs.
    """

    def __init__(self, facts: RankFacts, runs: ComparedRuns) -> None:
        self._facts = facts
        self._runs = runs

    def trace_cause(self, cause: Finding, node: Node) -> Finding:
        """Return the cause; of values without a recorded producer, the calls of one run only that they come from."""
        because, facts = node.because, node.facts
        is_whole = because.cause is Cause.INTRODUCED and is_module(facts.op)
        if because.cause is Cause.INTRODUCED and because.inputs.by_statistics and not because.replaces:
            origin = self._trace_hidden_difference(cause, node)
            if origin is None and is_move(facts.op):
                origin = self._trace_permuted_producer(cause, node)
            if origin is not None:
                return origin
        if because.replaces:
            return self._trace_region(cause, node)
        if because.cause is not Cause.TAKEN_IN and not is_whole:
            return cause
        calls = [] if is_whole else self._find_lone_producers(node)
        if any(calls):
            return self._blame_other_calls(cause, node, calls, f"returns what {facts.op} receives")
        receiver = None if is_whole else self._find_receiver(cause, node)
        if receiver is not None:
            return receiver
        calls = [list(self._iterate_calls_before(side, facts)) for side in (0, 1)]
        return self._blame_other_calls(cause, node, calls, f"directly precedes {facts.op}") if any(calls) else cause

    def _blame_other_calls(self, cause: Finding, node: Node, calls: list[list[str]], place: str) -> Finding:
        """Return the cause, said of the last of the calls that only one run makes or makes differently.

        Args:
            cause: The cause.
            node: The call that differs.
            calls: Calls of either run that lead to it.
            place: A clause on where they stand.
        """
        arguments = self._compare_arguments(calls)
        if not arguments and all(calls):
            calls = lone if any(lone := _select_lone_calls(calls)) else calls
        side = 0 if calls[0] else 1
        op, sides = calls[side][-1], SIDES if calls[0] else SIDES[::-1]
        code = Cause.ARGUMENT if arguments else Cause.ONE_SIDED
        modules = self._runs.list_modules(op, side)
        module = node.facts.within[0] if node.facts.within else ""
        where = f"{place} (in {module})" if module and module not in modules else place
        if arguments:
            description = f"was called with different arguments ({format_arguments(arguments)}), and {where}"
        elif not self._is_alone(op, side):
            description = f"{where}, but not in the {sides[1]}"
        elif all(calls):
            description = f"is called where the golden calls {_format_names(calls[1])}, and {where}"
        else:
            description = f"is called in the {sides[0]} only, and {where}"
        statement = node.because.statement.prepend(f"{description}: that call ")
        names = {"target_only": calls[0], "golden_only": calls[1]}
        evidence: dict[str, float | int | str] = {name: _format_names(keys) for name, keys in names.items() if keys}
        if arguments:
            evidence |= build_argument_evidence(op, arguments[0])
        return self._move_cause(cause, op, side, code, statement, node, **evidence)

    def _compare_arguments(self, calls: list[list[str]]) -> list[ArgumentDifference]:
        """Return the arguments that differ between the last calls, if both runs call the same API there."""
        if not all(calls) or get_api_name(calls[0][-1]) != get_api_name(calls[1][-1]):
            return []
        return compare_arguments(self._runs, calls[0][-1], calls[1][-1])

    def _find_lone_producers(self, node: Node) -> list[list[str]]:
        """Return for each run the call of that run only that returned what the op receives, if any."""
        facts, row = node.facts, node.because.value.row
        target = find_producer(self._runs.both[0], facts.op, row)
        golden_op = facts.golden or facts.op
        golden = find_producer(self._runs.both[1], golden_op, golden_op + row.removeprefix(facts.op))
        target_producers = [target] if target in self._facts.target_only else []
        return [target_producers, [golden] if golden in self._facts.golden_only else []]

    def _find_receiver(self, cause: Finding, node: Node) -> Finding | None:
        """Return the first unpaired call that receives the value that the op of the other run receives, or None.

        It represents calls that changed a gradient in place without a recorded output. So it must come after the
        backward pass, and it must do more than move values.
        """
        facts, row = node.facts, node.because.value.row
        ops = facts.op, facts.golden or facts.op
        alone = self._facts.target_only, self._facts.golden_only
        for side, run in enumerate(self._runs.both):
            other_op = ops[1 - side]
            value = find_value(self._runs.both[1 - side], other_op, other_op + row.removeprefix(facts.op))
            end = run.find(ops[side])
            start = next((n for n in range(end or 0, -1, -1) if is_backward(run.names()[n])), None)
            if value is None or end is None or start is None or value.statistics.max == value.statistics.min:
                continue
            for key in alone[side]:
                place = run.find(key)
                if place is None or not start < place < end or is_module(key) or is_arranging(key):
                    continue
                if not receives_tensor(run, key, value):
                    continue
                names = ("target", "golden")
                only = f"is called in the {names[side]} only, and " if self._is_alone(key, side) else ""
                statement = node.because.statement.prepend(
                    f"{only}receives what {other_op} receives in the {names[1 - side]}: {facts.op} "
                )
                evidence = {f"{names[side]}_only": key}
                return self._move_cause(cause, key, side, Cause.ONE_SIDED, statement, node, **evidence)
        return None

    def _trace_hidden_difference(self, cause: Finding, node: Node) -> Finding | None:
        """Return the call behind inputs whose statistics agree that only one run makes, or makes differently.

        It must be one that arranges values or returns none of floating point, so that statistics of what it
        returns may agree although the values do not.
        """
        op = node.facts.op
        calls = [list(self._iterate_upstream_calls(side, node.facts)) for side in (0, 1)]
        alone = self._facts.target_only, self._facts.golden_only
        lone_calls = _select_lone_calls(
            [[key for key in keys if key in lone_keys] for keys, lone_keys in zip(calls, alone)]
        )
        differs = Statement(f"returns {describe_values(node.because.value)}", "", format_difference(node.because.value))
        evidence: dict[str, str] = {}
        arguments = self._find_arrangement_arguments(node.facts, calls[0])
        code, side = Cause.ARGUMENT, 0
        key = next((key for key in calls[0] if key in arguments), "")
        if not key and not any(lone_calls):
            key = next(iter(arguments), "")
        if key:
            follows = f"{op}, which receives a value computed from it," if key in calls[0] else f"behind it, {op}"
            shown = format_difference(arguments[key])
            done = f"was called with a different argument ({shown}), which its statistics do not show"
            statement = differs.prepend(f"{done}; {follows} ")
            evidence |= {"argument": arguments[key].row, "argument_values": arguments[key].why}
        elif any(lone_calls):
            code, side = Cause.ONE_SIDED, 0 if lone_calls[0] else 1
            key = lone_calls[side][0]
            only = f"is called in the {SIDES[side]} only"
            done = f"is called where the golden calls {lone_calls[1][0]}" if all(lone_calls) else only
            if not self._is_alone(key, side):
                done = f"is called at another position in the {SIDES[1 - side]}"
            statement = differs.prepend(f"{done}, and {op}, which receives a value computed from it, ")
            evidence |= {
                name: lone_calls[n][0] for n, name in enumerate(("target_only", "golden_only")) if lone_calls[n]
            }
        else:
            return None
        return self._move_cause(cause, key, side, code, statement, node, **evidence)

    def _find_arrangement_arguments(self, facts: CallView, near: Sequence[str]) -> dict[str, Difference]:
        """Return the differing argument of each call before an op that arranges values or is ``near`` it."""
        arguments: dict[str, Difference] = {}
        end = self._facts.ops.numbers[facts.op]
        for call in self._facts.ops.iterate_with_other_argument():
            if self._facts.ops.numbers[call.op] >= end:
                break
            if call.op in near or is_arranging(call.op):
                argument = None if call.is_shifted else find_first_differing(call.arguments(), 0.0)
                if argument is not None and not is_storage(argument.row):
                    arguments[call.op] = argument
        return arguments

    def _trace_region(self, cause: Finding, node: Node) -> Finding:
        """Return the cause in calls that do not line up: those of them that only one run makes."""
        keys = node.facts.op, node.because.replaces
        calls = _select_lone_calls([list(self._iterate_neighbors(side, key)) for side, key in enumerate(keys)])
        if keys[0] in calls[0] and calls[1]:
            return replace_statement(cause, replace(node.because, replaces=_format_names(calls[1])).statement)
        if not any(calls):
            return cause
        side = 0 if calls[0] else 1
        key, only = calls[side][-1], f"is called in the {SIDES[side]} only"
        done = f"is called where the golden calls {_format_names(calls[1])}" if all(calls) else only
        if not self._is_alone(key, side):
            done = f"is called at another position in the {SIDES[1 - side]}"
        clause = f"{done}, next to {keys[0]}, which returns {describe_values(node.because.value)}"
        statement = Statement(clause, "", format_difference(node.because.value))
        return self._move_cause(cause, key, side, Cause.ONE_SIDED, statement, node)

    def _is_alone(self, op: str, side: int) -> bool:
        """Return True if the runs call the API of an op unequally often in the module around it."""
        module = self._runs.list_modules(op, side)[:1]
        counts = [
            sum(
                strip_numbers(key) == strip_numbers(op) and self._runs.list_modules(key, n)[:1] == module
                for key in run.names()
            )
            for n, run in enumerate(self._runs.both)
        ]
        return counts[0] != counts[1]

    def _iterate_neighbors(self, side: int, op: str) -> Iterator[str]:
        """Yield the calls of one run only that stand around one of them, no other between, in order."""
        run = self._runs.both[side]
        alone = self._facts.golden_only if side else self._facts.target_only
        names, place = run.names(), run.find(op)
        if place is None:
            return
        first = last = place
        while first > 0 and names[first - 1] in alone:
            first -= 1
        while last + 1 < len(names) and names[last + 1] in alone:
            last += 1
        yield from (key for key in names[first : last + 1] if not is_module(key))

    def _move_cause(
        self,
        cause: Finding,
        op: str,
        side: int,
        code: Cause,
        statement: Statement,
        node: Node,
        **evidence: float | int | str,
    ) -> Finding:
        """Return the cause, said of another call, which the one that differs follows."""
        cause_evidence = {name: value for name, value in cause.evidence.items() if name != "golden_op"}
        return replace(
            replace_statement(cause, statement, code.value),
            op=op,
            row="",
            modules=self._runs.list_modules(op, side),
            evidence=cause_evidence | evidence,
            where=self._runs.find_line(op, side),
            consequences=(node.facts.op, *cause.consequences),
            consequence_count=cause.consequence_count + 1,
        )

    def _iterate_upstream_calls(self, side: int, facts: CallView) -> Iterator[str]:
        """Yield the calls of a run that made what an op receives, nearest first, while values only move."""
        run = self._runs.both[side]
        waiting = [(facts.golden or facts.op) if side else facts.op]
        visited: set[str] = set()
        for _ in range(limits().followed):
            producer_keys = (key for op in waiting for key in find_producers(run, op).values())
            new_keys = dict.fromkeys(key for key in producer_keys if key not in visited)
            visited.update(new_keys)
            waiting = [key for key in new_keys if is_arranging(key) or has_uninformative_output(run, key)]
            yield from (key for key in waiting if not is_module(key))

    def _trace_permuted_producer(self, cause: Finding, node: Node) -> Finding | None:
        """Return the producer of what a call that only moves values receives, as a cause; None for none.

        What it receives agrees in its statistics, and what it returns does not: since it moves values only,
        they were no longer the same ones before.
        """
        inputs = [value for value in node.facts.inputs() if value.state != UNJUDGED]
        op = find_producer(self._runs.both[0], node.facts.op, inputs[0].row) if inputs else ""
        if not op or op in self._facts.target_only or node.because.inputs.worst > 1:
            return None
        calls = self._facts.ops
        golden = calls.goldens.get(calls.numbers[op], "") if op in calls.numbers else ""
        evidence = {"golden_op": golden} if golden else {}
        clause = (
            f"returns values that agree in their statistics, but not element by element: {node.facts.op}, "
            f"which only moves them, returns {describe_values(node.because.value)}"
        )
        statement = Statement(clause, "", format_difference(node.because.value))
        return self._move_cause(cause, op, 0, Cause.ORDER, statement, node, **evidence)

    def _iterate_calls_before(self, side: int, facts: CallView) -> Iterator[str]:
        """Yield the calls of one run only that stand right before an op, the last of them last."""
        run = self._runs.both[side]
        alone = self._facts.golden_only if side else self._facts.target_only
        place = run.find(facts.golden or facts.op if side else facts.op)
        names = run.names()
        lone_calls: list[str] = []
        while place is not None and place > 0:
            place -= 1
            if names[place] in alone:
                lone_calls.append(names[place])
            elif not is_module(names[place]):
                break
        yield from reversed([key for key in lone_calls if not is_module(key)] or lone_calls)


def _select_lone_calls(calls: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the calls of both sides without those of APIs that the other side calls as often."""
    counts = [Counter(map(get_api_name, keys)) for keys in calls]
    lone_calls: list[list[str]] = [[], []]
    for side in (0, 1):
        left = counts[side] - counts[1 - side]
        for key in calls[side]:
            if left[get_api_name(key)] > 0:
                left[get_api_name(key)] -= 1
                lone_calls[side].append(key)
    return lone_calls


def _format_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_NAMED_CALLS])
    return shown if len(names) <= MAX_NAMED_CALLS else f"{shown} and {len(names) - MAX_NAMED_CALLS} more"

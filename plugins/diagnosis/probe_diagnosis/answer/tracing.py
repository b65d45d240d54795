"""Values out of nowhere, traced back to calls that only one run made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from probe_core.model import Reason
from probe_core.model.answers import Finding
from probe_diagnosis.answer.arguments import Argument, api, differing, evidence_of, said
from probe_diagnosis.answer.kept import RankFacts
from probe_diagnosis.answer.producers import producer
from probe_diagnosis.answer.runs import Runs
from probe_diagnosis.difference.facts import UNJUDGED, OpFacts, is_module
from probe_diagnosis.difference.reasons import Cause
from probe_diagnosis.difference.search import is_move
from probe_diagnosis.difference.walking import Node

NAMED = 6
"""Number of calls in one run only that a finding names."""


class Tracing:
    """Search for the calls behind values that differ without an earlier difference.

    Args:
        facts: The facts about the rank.
        runs: Both runs.
    """

    def __init__(self, facts: RankFacts, runs: Runs) -> None:
        self._facts = facts
        self._runs = runs

    def traced(self, cause: Finding, node: Node) -> Finding:
        """Return the cause; of values out of nowhere, the calls of one run only that they come from."""
        because, facts = node.because, node.facts
        is_whole = because.cause is Cause.INTRODUCED and is_module(facts.op)
        if because.cause is Cause.INTRODUCED and because.inputs.by_statistics and is_move(facts.op):
            return self._with_order(cause, node)
        if because.cause is not Cause.TAKEN_IN and not is_whole:
            return cause
        calls = [] if is_whole else self._producers(node)
        how = "returns what"
        if not any(calls):
            calls, how = [list(self._before(side, facts)) for side in (0, 1)], "stands right before"
        if not any(calls):
            return cause
        side = 0 if calls[0] else 1
        op = calls[side][-1]
        code = Cause.ONE_SIDED
        arguments = self._arguments(calls)
        if arguments:
            code, done = Cause.ARGUMENT, f"was called with other arguments ({said(arguments)})"
        elif all(calls):
            done = f"is called where the golden calls {_some(calls[1])}"
        else:
            done = f"is called in the {('target', 'golden')[side]} only"
        takes = f"{how} {facts.op} takes in" if how == "returns what" else f"{how} {facts.op}"
        modules = self._runs.modules(op, side)
        there = facts.within[0] if facts.within else ""
        inside = f" (in {there})" if there and there not in modules else ""
        detail = f"{done}, and {takes}{inside}: that call {because.statement}"
        names = {"target_only": calls[0], "golden_only": calls[1]}
        evidence = {**cause.evidence, **{name: _some(keys) for name, keys in names.items() if keys}}
        if arguments:
            evidence |= evidence_of(op, arguments[0])
        return replace(
            cause,
            op=op,
            row="",
            modules=modules,
            reason=Reason(code.value, detail),
            evidence=evidence,
            where=self._runs.where(op, side),
            consequences=(facts.op, *cause.consequences),
            consequence_count=cause.consequence_count + 1,
        )

    def _arguments(self, calls: list[list[str]]) -> list[Argument]:
        """Return the arguments that differ between the last calls, if both runs call the same API there."""
        if not all(calls) or api(calls[0][-1]) != api(calls[1][-1]):
            return []
        return differing(self._runs, calls[0][-1], calls[1][-1])

    def _producers(self, node: Node) -> list[list[str]]:
        """Return for each run the call of that run only that returned what the op takes in, if any."""
        facts, row = node.facts, node.because.value.row
        target = producer(self._runs.both[0], facts.op, row)
        other = facts.golden or facts.op
        golden = producer(self._runs.both[1], other, other + row.removeprefix(facts.op))
        found = [target] if target in self._facts.target_only else []
        return [found, [golden] if golden in self._facts.golden_only else []]

    def _with_order(self, cause: Finding, node: Node) -> Finding:
        """Return the cause; of a call that moves values only, the producer of these values instead."""
        inputs = [value for value in node.facts.inputs() if value.state != UNJUDGED]
        op = producer(self._runs.both[0], node.facts.op, inputs[0].row) if inputs else ""
        if not op or op in self._facts.target_only:
            return cause
        detail = (
            f"returns values that agree in their statistics, but in another order: {node.facts.op}, which "
            f"only moves them, {node.because.statement}"
        )
        return replace(
            cause,
            op=op,
            row="",
            modules=self._runs.modules(op),
            reason=Reason(Cause.ORDER.value, detail),
            where=self._runs.where(op),
            consequences=(node.facts.op, *cause.consequences),
            consequence_count=cause.consequence_count + 1,
        )

    def _before(self, side: int, facts: OpFacts) -> Iterator[str]:
        """Yield the calls of one run only that stand right before an op, the last of them last."""
        run = self._runs.both[side]
        alone = self._facts.golden_only if side else self._facts.target_only
        place = run.find(facts.golden or facts.op if side else facts.op)
        names = run.names()
        found: list[str] = []
        while place is not None and place > 0:
            place -= 1
            if names[place] in alone:
                found.append(names[place])
            elif not is_module(names[place]):
                break
        yield from reversed([key for key in found if not is_module(key)] or found)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"

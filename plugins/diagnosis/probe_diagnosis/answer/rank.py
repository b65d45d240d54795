"""The answer on one rank, from the facts about its ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from probe_core.errors import UserError
from probe_core.model import Reason
from probe_core.model.answers import Answer, Finding
from probe_core.model.plan import Plan
from probe_core.model.report import Report
from probe_core.model.run import Run
from probe_core.store.frames import own_frame
from probe_diagnosis.answer.findings import finding, folded
from probe_diagnosis.answer.verdict import answer_of
from probe_diagnosis.difference.facts import UNJUDGED, OpFacts
from probe_diagnosis.difference.reasons import Because, Cause, first_differing, inputs_of
from probe_diagnosis.difference.search import search
from probe_diagnosis.difference.walking import Node

if TYPE_CHECKING:
    from probe_diagnosis.suspects import Suspects

GROWN = 10
"""Multiple of rounding from which on values that no single call explains count as diverged."""

NAMED = 6
"""Number of calls in one run only that a finding names."""


class Found:
    """What was found on one rank.

    Args:
        finder: The facts about its ops.
        report: The counts and notes of the comparison.
        plan: The plan of the comparison.
        target: The run under test.
        golden: The reference.
    """

    def __init__(self, finder: Suspects, report: Report, plan: Plan, target: Run, golden: Run) -> None:
        self._finder = finder
        self._report = report
        self._runs = target, golden
        self._paths = plan.stack_path or target.stack_path, golden.stack_path
        self._tried = [False, False]

    def answer(self) -> tuple[Answer, list[Finding]]:
        """Return the verdict, and the causes that it rests on."""
        finder = self._finder
        searched = search({finder.rank: finder.ops})
        nodes = [*searched.first, *searched.further]
        if not nodes:
            nodes = [node for node in searched.grown if node.because.times > GROWN]
        behind = searched.behind[finder.rank]
        causes = [finding(node, self._where, behind if n == 0 else ()) for n, node in enumerate(nodes)]
        causes = [self._with_calls_before(causes[0], nodes[0]), *causes[1:]] if causes else []
        causes = folded(self._with_the_same(causes, nodes))
        limit = nodes[0].facts if nodes else None
        differently = folded([finding(node, self._where) for node in self._made_differently(limit)])
        if nodes and nodes[0].because.cause is Cause.GROWN and differently:
            causes, differently = [*differently, *causes], []
        answer = answer_of(
            causes,
            differently,
            finder.tally,
            by_checksum=bool(nodes) and all(node.because.value.by == "checksum" for node in nodes),
            interrupted=self._report.interrupted,
            unfinished=self._unfinished(),
        )
        return answer, [*causes, *differently]

    def _unfinished(self) -> list[str]:
        return [
            f"the {side} is unfinished: {run.header.unfinished}"
            for side, run in zip(("target", "golden"), self._runs)
            if run.header.unfinished
        ]

    # -- lines of code -------------------------------------------------------------------------------

    def _where(self, op: str, side: int = 0) -> str:
        """Return the line of code of an op of the target (0) or the golden (1); empty if not recorded."""
        run, path = self._runs[side], self._paths[side]
        frames = run.stack_of(op)
        if frames is None and not self._tried[side] and path is not None and path.is_file():
            self._tried[side] = True
            with suppress(UserError):  # its absence was noted, or it is not asked for
                run.use_stacks(path)
            frames = run.stack_of(op)
        return own_frame(frames or ())

    # -- calls in one run only -------------------------------------------------------------------------

    def _with_calls_before(self, cause: Finding, node: Node) -> Finding:
        """Return the cause; of values out of nowhere behind calls of one run only, these calls instead."""
        is_whole = node.because.cause is Cause.INTRODUCED and node.facts.op.startswith("Module.")
        if node.because.cause is not Cause.TAKEN_IN and not is_whole:
            return cause
        calls = [list(self._before(side, node.facts)) for side in (0, 1)]
        if not any(calls):
            return cause
        side = 0 if calls[0] else 1
        op = calls[side][-1]
        if all(calls):
            done = f"is called where the golden calls {_some(calls[1])}"
        else:
            done = f"is called in the {('target', 'golden')[side]} only"
        detail = f"{done}; behind it, {node.facts.op} {node.because.statement}"
        names = {"target_only": calls[0], "golden_only": calls[1]}
        evidence = {
            **cause.evidence,
            **{name: ", ".join(keys[-NAMED:]) for name, keys in names.items() if keys},
        }
        return replace(
            cause, op=op, reason=Reason(Cause.ONE_SIDED.value, detail), evidence=evidence,
            where=self._where(op, side), consequences=(node.facts.op, *cause.consequences),
            consequence_count=cause.consequence_count + 1,
        )  # fmt: skip

    def _before(self, side: int, facts: OpFacts) -> Iterator[str]:
        """Yield the calls of one run only that stand right before an op, the last of them last."""
        run = self._runs[side]
        alone = self._finder.golden_only if side else self._finder.target_only
        place = run.find(facts.golden or facts.op if side else facts.op)
        names = run.names()
        found: list[str] = []
        while place is not None and place > 0:
            place -= 1
            if names[place] in alone:
                found.append(names[place])
            elif not names[place].startswith("Module."):
                break
        yield from reversed([key for key in found if not key.startswith("Module.")] or found)

    # -- the same elsewhere ------------------------------------------------------------------------------

    def _with_the_same(self, causes: Sequence[Finding], nodes: Sequence[Node]) -> list[Finding]:
        """Return the causes, those by an argument with the other calls that differ in the same argument."""
        whole: list[Finding] = []
        for cause, node in zip(causes, nodes):
            argument = node.because.argument
            if cause.reason.code == Cause.ARGUMENT.value and argument is not None:
                wanted = _api(node.facts.op), argument.row.removeprefix(node.facts.op), argument.why
                same = tuple(
                    op.op
                    for op in self._finder.ops
                    if op.op != node.facts.op and _api(op.op) == wanted[0]
                    for value in op.arguments()
                    if (value.row.removeprefix(op.op), value.why) == wanted[1:]
                )
                cause = replace(cause, same=same)
            whole.append(cause)
        return whole

    # -- calls that were made differently, though their values agree ---------------------------------------

    def _made_differently(self, limit: OpFacts | None) -> Iterator[Node]:
        """Yield calls before the op ``limit`` with another argument or dtype, whose values agree."""
        told = agreed = False
        for place, op in enumerate(self._finder.ops):
            if op is limit:
                return
            outputs = list(op.outputs())
            lacking = any(value.state == UNJUDGED for value in outputs) or not outputs
            inputs = inputs_of(op, 0.0)._replace(compared=int(not lacking))
            argument = None if op.is_shifted else first_differing(op.arguments(), 0.0)
            recast = next((value for value in op.values if value.dtypes), None)
            if argument is not None:
                value = next(iter(outputs), argument)
                yield Node(
                    self._finder.rank, op, Because(Cause.DIFFERENTLY, value, inputs, argument), 0, place
                )
            elif recast is not None and agreed and not told:
                told = True
                yield Node(self._finder.rank, op, Because(Cause.DIFFERENTLY, recast, inputs), 0, place)
            agreed = agreed or (recast is None and any(value.is_float for value in op.values))


def _api(op: str) -> str:
    """Return the name of the API or the class of the module of an op."""
    parts = op.split(".")
    return parts[-3] if len(parts) > 3 else op


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"

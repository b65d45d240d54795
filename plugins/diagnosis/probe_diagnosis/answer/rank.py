"""The answer on one rank, from the facts about its ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from probe_core.errors import UserError
from probe_core.model import Reason
from probe_core.model.answers import Answer, Finding
from probe_core.model.dtypes import kind, same
from probe_core.model.plan import Plan
from probe_core.model.report import Report
from probe_core.model.run import Run
from probe_core.store.frames import own_frame
from probe_diagnosis.answer.findings import finding, folded
from probe_diagnosis.answer.producers import output_dtypes, producer
from probe_diagnosis.answer.verdict import answer_of
from probe_diagnosis.difference.facts import UNJUDGED, OpFacts
from probe_diagnosis.difference.reasons import Because, Cause, first_differing, inputs_of
from probe_diagnosis.difference.search import is_move, search
from probe_diagnosis.difference.walking import Node

if TYPE_CHECKING:
    from probe_diagnosis.suspects import Suspects

GROWN = 10
"""Multiple of rounding from which on values that no single call explains count as diverged."""

GONE = ", but what the calls behind it return agrees"
"""End of a note on a difference that had no effect."""

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
        behind = searched.behind[finder.rank]
        unseen = list(searched.vanished)
        if len(nodes) == 1 and not behind and _has_no_effect(nodes[0]):
            unseen += [nodes.pop()]
        doubtful = [node for node in unseen if node.because.value.by == "statistics"] if not nodes else []
        nodes = nodes or doubtful or searched.grown
        causes = [self._cause(node, behind if n == 0 else ()) for n, node in enumerate(nodes)]
        causes = folded(self._with_the_same(causes, nodes))
        made = list(self._made_differently(nodes[0].facts if nodes else None))
        unlike = [node for node in made if not _is_none(node)]
        differently = folded([*self._lowered(), *(finding(node, self._where) for node in unlike)])
        is_grown = bool(nodes) and nodes[0].because.cause is Cause.GROWN
        if is_grown and differently:
            causes, differently = [*differently, *causes], []
        notes = [
            node for node in [*unseen, *(node for node in made if _is_none(node))] if node not in doubtful
        ]
        answer = answer_of(
            causes,
            differently,
            finder.tally,
            notes=[f"{node.facts.op} {node.why}{'' if _is_none(node) else GONE}" for node in notes],
            doubt=_doubt(nodes, doubtful),
            interrupted=self._report.interrupted,
            unfinished=self._unfinished(),
        )
        return answer, [*causes, *differently]

    def _cause(self, node: Node, behind: Sequence[str]) -> Finding:
        """Return a cause as a finding, traced back to a call of one run only where that explains it."""
        return self._traced(finding(node, self._where, behind), node)

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

    def _traced(self, cause: Finding, node: Node) -> Finding:
        """Return the cause; of values out of nowhere, the calls of one run only that they come from."""
        because, facts = node.because, node.facts
        is_whole = because.cause is Cause.INTRODUCED and facts.op.startswith("Module.")
        if because.cause is Cause.INTRODUCED and because.inputs.by_statistics and is_move(facts.op):
            return self._with_order(cause, node)
        if because.cause is not Cause.TAKEN_IN and not is_whole:
            return cause
        calls = [] if is_whole else self._producers(node)
        how = "returns what"
        if not any(calls):
            calls, how = [list(self._before(side, facts)) for side in (0, 1)], "stands before"
        if not any(calls):
            return cause
        side = 0 if calls[0] else 1
        op = calls[side][-1]
        if all(calls):
            done = f"is called where the golden calls {_some(calls[1])}"
        else:
            done = f"is called in the {('target', 'golden')[side]} only"
        takes = f"{how} {facts.op} takes in" if how == "returns what" else f"{how} {facts.op}"
        detail = f"{done}, and {takes}, which {because.statement}"
        names = {"target_only": calls[0], "golden_only": calls[1]}
        evidence = {**cause.evidence, **{name: _some(keys) for name, keys in names.items() if keys}}
        return replace(
            cause,
            op=op,
            row="",
            modules=tuple(dict.fromkeys([*self._runs[side].construct.ancestors(op), *cause.modules])),
            reason=Reason(Cause.ONE_SIDED.value, detail),
            evidence=evidence,
            where=self._where(op, side),
            consequences=(facts.op, *cause.consequences),
            consequence_count=cause.consequence_count + 1,
        )

    def _producers(self, node: Node) -> list[list[str]]:
        """Return for each run the call of that run only that returned what the op takes in, if any."""
        facts, row = node.facts, node.because.value.row
        target = producer(self._runs[0], facts.op, row)
        other = facts.golden or facts.op
        golden = producer(self._runs[1], other, other + row.removeprefix(facts.op))
        found = [target] if target in self._finder.target_only else []
        return [found, [golden] if golden in self._finder.golden_only else []]

    def _with_order(self, cause: Finding, node: Node) -> Finding:
        """Return the cause; of a call that moves values only, the producer of these values instead."""
        inputs = [value for value in node.facts.inputs() if value.state != UNJUDGED]
        op = producer(self._runs[0], node.facts.op, inputs[0].row) if inputs else ""
        if not op or op in self._finder.target_only:
            return cause
        detail = (
            f"returns values that agree in their statistics, but in another order: {node.facts.op}, which "
            f"only moves them, {node.because.statement}"
        )
        return replace(
            cause,
            op=op,
            row="",
            modules=tuple(self._runs[0].construct.ancestors(op)),
            reason=Reason(Cause.ORDER.value, detail),
            where=self._where(op),
            consequences=(node.facts.op, *cause.consequences),
            consequence_count=cause.consequence_count + 1,
        )

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

    def _lowered(self) -> Iterator[Finding]:
        """Yield the calls of both runs that are unpaired because they compute in another dtype."""
        waiting: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for key in self._finder.golden_only:
            waiting.setdefault(self._kind(key, 1), []).append(key)
        for key in self._finder.target_only:
            others = waiting.get(self._kind(key, 0))
            if not others or key.startswith("Module."):
                continue
            golden = others.pop(0)
            dtypes = output_dtypes(self._runs[0], key), output_dtypes(self._runs[1], golden)
            if all(len(one) == 1 and kind(one[0]) == "float" for one in dtypes) and not same(
                dtypes[0][0], dtypes[1][0]
            ):
                detail = f"computes in {dtypes[0][0]} where the golden's {golden} computes in {dtypes[1][0]}"
                evidence: dict[str, float | int | str] = {
                    "target_dtype": dtypes[0][0],
                    "golden_dtype": dtypes[1][0],
                }
                modules = tuple(self._runs[0].construct.ancestors(key))
                yield Finding(key, "", Reason(Cause.DIFFERENTLY.value, detail), evidence, "", modules,
                              self._where(key), rank=self._finder.rank)  # fmt: skip

    def _kind(self, op: str, side: int) -> tuple[str, tuple[str, ...]]:
        """Return the API of a call, and the modules around it."""
        return _api(op), tuple(self._runs[side].construct.ancestors(op))

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


def _has_no_effect(node: Node) -> bool:
    """Return True if an op takes in values that differ, and what it returns agrees all the same."""
    return node.because.cause is Cause.TAKEN_IN and node.facts.agrees


def _is_none(node: Node) -> bool:
    """Return True for a call whose only difference is an argument that one run has and the other has not."""
    argument = node.because.argument
    is_made = node.because.cause is Cause.DIFFERENTLY and argument is not None
    return is_made and argument is not None and "None" in argument.why and node.because.inputs.compared > 0


def _doubt(nodes: Sequence[Node], doubtful: Sequence[Node]) -> str:
    """Return the reason why differences do not show that the runs diverged; empty if they do."""
    if doubtful:
        return "what follows agrees in its statistics again, which does not show that the values agree"
    if nodes and all(node.because.value.by == "checksum" for node in nodes):
        return "checksums do not say whether that is more than rounding"
    if nodes and nodes[0].because.cause is Cause.GROWN and nodes[0].because.times <= GROWN:
        return "it may be rounding that has added up"
    return ""


def _api(op: str) -> str:
    """Return the name of the API or the class of the module of an op."""
    parts = op.split(".")
    return parts[-3] if len(parts) > 3 else op


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"

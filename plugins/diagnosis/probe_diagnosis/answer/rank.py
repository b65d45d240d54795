"""The answer on one rank, from the facts about its ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe_core.model.answers import Answer, Finding, Note, NoteKind, Outcome
from probe_diagnosis.answer import ladder
from probe_diagnosis.answer.causes import causes_of
from probe_diagnosis.answer.condition_causes import ConditionCauses
from probe_diagnosis.answer.detected import in_order
from probe_diagnosis.answer.differently import called_differently_behind, is_harmless
from probe_diagnosis.answer.effect import Effect
from probe_diagnosis.answer.findings import finding
from probe_diagnosis.answer.ladder import Ladders
from probe_diagnosis.answer.parts import Parts, in_parts
from probe_diagnosis.answer.precision_cause import with_precision
from probe_diagnosis.answer.replaced import floats_in, replaced
from probe_diagnosis.answer.runs import Runs
from probe_diagnosis.answer.selection import Selection, select, with_names
from probe_diagnosis.answer.verdict import answer_of
from probe_diagnosis.difference.reasons import Cause
from probe_diagnosis.difference.walking import Node, Past
from probe_diagnosis.limits import limits
from probe_diagnosis.phases.ladder_file import read_ladder
from probe_diagnosis.timeline.coverage import SHIFTED
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.views import DifferenceKind

GONE = ", but what the calls behind it return agrees"
"""End of a note on a difference that had no effect."""

NO_TRACE = ", but the loss and the gradients of parameters agree"
"""End of a note on a difference that neither the loss nor a gradient of a parameter shows."""

ROUNDED = ", but the loss and the gradients of parameters that follow agree within rounding"
"""End of a note on a difference that is rounding, as its effect shows."""

UNLESS = ", which is a cause of its own unless the program computed it from values that differ."
"""End of the advice on a call behind values that differed before."""

SECOND = (
    "Record the golden once more with other kernels or another number of threads, and compare with "
    "--baseline and that run."
)
"""Advice where a second golden run would decide."""


CERTAIN = frozenset({Cause.CONDITION.value, Cause.RANDOM.value, Cause.NOT_RESTORED.value})
"""Codes of causes that no rounding can be the reason for."""


class Found:
    """Findings on one rank.

    Args:
        facts: The facts about its ops.
        runs: Both runs.
        step: The directory of the step; empty if there is only one.
        interrupted: True if rows are missing.
        several: True if the runs have several ranks, so that sentences name this one.
        moved: A call that the golden makes at another place; None if there is none.
        past: What earlier steps explain, which agree but for rounding; None if nothing is known of them.
        detected: What the detectors of plugins found, in the order of the calls.
        not_restored: What a resumed run did not restore; it explains what differs in the step.
        third: The directory of the reference's record; None without one.
        precision: The lower precision of one run, which raised what rounding explains; None for none.
    """

    def __init__(
        self, facts: RankFacts, runs: Runs, *, step: str = "", interrupted: bool, several: bool = False,
        moved: Finding | None = None, past: Past | None = None, detected: Sequence[Finding] = (),
        not_restored: Sequence[Finding] = (), third: Path | None = None,
        precision: Finding | None = None,
    ) -> None:  # fmt: skip
        self._facts = facts
        self._runs = runs
        self._step = step
        self._interrupted = interrupted
        self._several = several
        self._moved = moved
        self._past = past
        self._detected = detected
        self._not_restored = not_restored
        self._third = third
        self._precision = precision

    def answer(
        self, baseline: Mapping[str, Any] | None = None, reference: Mapping[str, Any] | None = None
    ) -> tuple[Answer, list[Finding]]:
        """Return the verdict, and the causes that it rests on.

        Args:
            baseline: The counts of the baseline; None without one.
            reference: The counts of the reference; None without one.
        """
        facts, runs, past = self._facts, self._runs, self._past
        is_excused = bool(reference and reference["values"])
        phases = read_ladder(self._third) if is_excused and self._third is not None else None
        ladders = Ladders(facts, runs, past.noise if past is not None else 0.0, phases)
        selection = select(facts, runs, ladders, past, in_step=bool(self._step))
        is_explained = self._moved is not None or bool(baseline and baseline["raised"])
        is_explained = is_explained or (is_excused and phases is None)
        conditions = ConditionCauses(facts, runs)
        found = causes_of(facts, runs, ladders, selection, conditions, is_explained=is_explained)
        named = {cause.op for cause in found.causes}
        moved = () if self._moved is None else (self._moved,)
        found_causes = with_precision([*moved, *found.causes], self._precision)
        causes = [*self._not_restored] or in_order(self._detected, found_causes, facts, runs)
        is_certain = bool(causes) and (causes[0] in self._detected or causes[0].reason.code in CERTAIN)
        doubt = "" if is_certain else selection.doubt
        if not causes:
            self._excuse(ladders)
        may_decide = selection.is_grown and bool(doubt) and not baseline
        answer = answer_of(
            causes,
            found.differently,
            facts.tally,
            notes=[*self._notes(selection)],
            doubt=doubt,
            interrupted=self._interrupted,
            unfinished=[*runs.unfinished(), *runs.unrecorded(), *ladders.missing()],
            measured=baseline,
            reference=reference,
            advice=self._advice(() if found.has_origin else selection.named, named, may_decide),
            several=self._several,
        )
        withdrawn = tuple(self._withdrawn(selection, found.differently))
        answer = conditions.state_in(replace(answer, withdrawn=withdrawn), self._step)
        parts = self._parts(selection.named, answer, ladders)
        if parts is not None:
            return _by_parts(answer, parts, causes), []
        return answer, [*causes, *found.differently]

    def _excuse(self, ladders: Ladders) -> None:
        """Count the calls of one run only that stand for calls of the other, if too little was compared."""
        facts, runs = self._facts, self._runs
        if facts.tally.least_share < limits().enough:
            same = Effect(facts.ops).are_ends_same()
            pairs = zip(ladders.excused(), replaced(facts, runs, is_same=same))
            both = (one | other for one, other in pairs)
            facts.tally.stood_for = [floats_in(run, keys) for run, keys in zip(runs.both, both)]

    def _notes(self, selection: Selection) -> Iterator[Note]:
        """Yield notes on the calls that differ, but are not causes."""
        harmless = [node for node in selection.made_differently if is_harmless(node)]
        for kind, nodes, ending in (
            (NoteKind.NO_EFFECT, selection.without_effect, GONE),
            (NoteKind.NO_EFFECT, selection.without_trace, NO_TRACE),
            (NoteKind.ROUNDING, selection.rounding, ROUNDED),
            (NoteKind.HARMLESS, harmless, ""),
        ):
            for node in nodes:
                op = node.facts.op
                yield Note(kind, f"{op} {self._with_names(node).why}{ending}", op)

    def _withdrawn(self, selection: Selection, differently: Sequence[Finding]) -> Iterator[Finding]:
        """Yield what differs without an effect in this step, unless values that it receives explain it."""
        for node in (*selection.without_effect, *selection.without_trace):
            if node.because.argument is not None or node.because.cause in (
                Cause.INTRODUCED,
                Cause.NOT_FINITE,
            ):
                yield finding(self._with_names(node), self._runs.where)
        yield from (one for one in differently if one.reason.code == ladder.KIND)

    def _with_names(self, node: Node) -> Node:
        return with_names(node, self._runs, in_step=bool(self._step))

    def _advice(self, nodes: Sequence[Node], named: Set[str], may_decide: bool) -> list[str]:
        """Return what else to do next.

        Args:
            nodes: The calls that are reported.
            named: The names of the calls that causes name.
            may_decide: True if a second golden run would decide.
        """
        found = [SECOND] if may_decide else []
        if nodes and nodes[0].because.cause is Cause.TAKEN_IN:
            behind = called_differently_behind(self._facts, nodes[0].facts)
            other = next((node for node in behind if node.facts.op not in named), None)
            if other is not None:
                arguments = self._with_names(other).because.told_argument
                made = f"it was called with a different argument ({arguments})"
                found.append(f"Look at {other.facts.op}, too: {made}{UNLESS}")
        return found

    def _parts(self, nodes: Sequence[Node], answer: Answer, ladders: Ladders) -> Parts | None:
        """Return the agreement of parts with the whole, where only shapes and numbers of calls differ."""
        tally = self._facts.tally
        is_other_shape = bool(nodes) and nodes[0].because.value.kind is DifferenceKind.SHAPE
        is_silent = not nodes and answer.outcome is not Outcome.AGREE and not tally.failing_at
        if self._interrupted or tally.unexcused > tally.lacking[SHIFTED] or not (is_other_shape or is_silent):
            return None
        if ladders.is_effective or self._runs.are_rows:
            return None
        return in_parts(self._runs, self._facts.ops.noise, are_sums_known=ladders.are_gradients_same())


def _by_parts(answer: Answer, parts: Parts, causes: Sequence[Finding]) -> Answer:
    """Return the verdict that parts agree with the whole; the causes become notes."""
    notes = (Note(NoteKind.HARMLESS, f"{one.op} {one.reason.detail}", one.op) for one in causes)
    return Answer(
        Outcome.AGREE, parts.sentence, (), answer.coverage, answer.missing, (), (*answer.notes, *notes),
        incomplete=answer.incomplete, conditions=answer.conditions,
        unknown_conditions=answer.unknown_conditions, reference=answer.reference,
    )  # fmt: skip

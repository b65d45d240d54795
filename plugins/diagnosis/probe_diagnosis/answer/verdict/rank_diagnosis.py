"""The answer on one rank, from the facts about its ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probe_core.model.answers import Answer, Finding, Note, NoteKind, Outcome
from probe_diagnosis.answer.causes import phase_comparison
from probe_diagnosis.answer.causes.altered_calls import find_altered_calls_after, is_harmless
from probe_diagnosis.answer.causes.batch_parts import PartsAgreement, compare_in_parts
from probe_diagnosis.answer.causes.call_selection import CallSelection, add_argument_names, select_calls
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.condition_causes import ConditionCauses
from probe_diagnosis.answer.causes.detector_findings import insert_detector_findings
from probe_diagnosis.answer.causes.findings import create_finding
from probe_diagnosis.answer.causes.moved_calls import can_precede, has_effect_before_optimizer
from probe_diagnosis.answer.causes.one_sided_blocks import describe_one_sided_blocks
from probe_diagnosis.answer.causes.phase_comparison import PhaseComparison
from probe_diagnosis.answer.causes.precision_cause import insert_precision
from probe_diagnosis.answer.causes.rank_causes import find_causes
from probe_diagnosis.answer.causes.replaced_calls import count_float_tensors, find_replaced_calls
from probe_diagnosis.answer.causes.step_effect import StepEffect
from probe_diagnosis.answer.verdict.rank_verdict import build_rank_answer
from probe_diagnosis.difference.nodes import Node, RankHistory
from probe_diagnosis.difference.reason_statement import format_different_arguments
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.limits import limits
from probe_diagnosis.phases.phases_file import read_phases
from probe_diagnosis.timeline.compared_calls import DifferenceKind
from probe_diagnosis.timeline.coverage import SHIFTED
from probe_diagnosis.timeline.rank_facts import RankFacts

NO_EFFECT_ENDING = ", but the outputs of later calls agree"
"""End of a note on a difference that had no effect."""

NO_TRACE_ENDING = ", but the loss and the gradients of parameters agree"
"""End of a note on a difference that neither the loss nor a gradient of a parameter shows."""

ROUNDING_ENDING = ", but the loss and the gradients of parameters that follow agree within rounding"
"""End of a note on a difference that is rounding, as its effect shows."""

ADVICE_ENDING = ", which is a separate cause unless the program computed this argument from values that differ."
"""End of the advice on a call behind values that differed before."""

SECOND_GOLDEN_ADVICE = (
    "Record the golden once more with other kernels or another number of threads, and compare with "
    "--baseline and that run."
)
"""Advice where a second golden run would decide."""


CERTAIN_CODES = frozenset({CauseKind.CONDITION.value, CauseKind.RANDOM.value, CauseKind.NOT_RESTORED.value})
"""Codes of causes that no rounding can be the reason for."""


@dataclass(frozen=True)
class RankDiagnosis:
    """The diagnosis of one rank.

    Attributes:
        facts: The facts about the calls of the rank.
        runs: Both runs.
        step: The directory of the step; empty if there is only one.
        is_interrupted: True if rows are missing.
        is_multi_rank: True if the runs have several ranks, so that sentences name the rank.
        moved_call: A call that the golden makes before or after other calls; None if there is none.
        history: The rounding that earlier steps carry into this one; None if earlier steps are not considered.
        detector_findings: The findings of the detectors of plugins, in the order of the calls.
        restore_findings: The states that a resumed run did not restore; they explain all differences in the step.
        reference_directory: The directory of the reference's record; None without a reference.
        precision: The lower precision of one run, which raised what rounding explains; None without it.
    """

    facts: RankFacts
    runs: ComparedRuns
    step: str = ""
    is_interrupted: bool = False
    is_multi_rank: bool = False
    moved_call: Finding | None = None
    history: RankHistory | None = None
    detector_findings: Sequence[Finding] = ()
    restore_findings: Sequence[Finding] = ()
    reference_directory: Path | None = None
    precision: Finding | None = None

    def build_answer(
        self, baseline: Mapping[str, Any] | None = None, reference: Mapping[str, Any] | None = None
    ) -> tuple[Answer, list[Finding]]:
        """Return the verdict, and the causes that it rests on.

        Args:
            baseline: The counts of the baseline; None without one.
            reference: The counts of the reference; None without one.
        """
        facts, runs, history = self.facts, self.runs, self.history
        is_excused = bool(reference and reference["values"])
        phases = read_phases(self.reference_directory) if is_excused and self.reference_directory else None
        step_phases = PhaseComparison(facts, runs, history.noise if history is not None else 0.0, phases)
        selection = select_calls(facts, runs, step_phases, history, in_step=bool(self.step))
        moved = self._find_effective_move(selection)
        is_raised = bool(baseline and baseline["raised"])
        is_explained = bool(moved) or is_raised or (is_excused and phases is None)
        conditions = ConditionCauses(facts, runs)
        rank_causes = find_causes(facts, runs, step_phases, selection, conditions, is_explained=is_explained)
        named = {cause.op for cause in rank_causes.causes}
        causes = self._order_causes([*moved, *rank_causes.causes])
        doubt = "" if self._is_certain(causes) else selection.doubt
        if not causes:
            self._excuse(step_phases)
        may_decide = selection.is_grown and bool(doubt) and not baseline
        answer = build_rank_answer(
            causes,
            rank_causes.altered_calls,
            facts.tally,
            notes=[*self._iterate_notes(selection)],
            doubt=doubt,
            is_interrupted=self.is_interrupted,
            unfinished=self._describe_gaps(step_phases),
            baseline_counts=baseline,
            reference=reference,
            advice=self._advise(() if rank_causes.has_origin else selection.reported, named, may_decide),
            is_multi_rank=self.is_multi_rank,
        )
        if answer.outcome is Outcome.AGREE:
            answer = replace(answer, notes=(*answer.notes, *describe_one_sided_blocks(facts, runs)))
        withdrawn = tuple(self._iterate_withdrawn(selection, rank_causes.altered_calls))
        answer = conditions.add_to_answer(replace(answer, withdrawn=withdrawn), self.step)
        parts = self._compare_parts(selection.reported, answer, step_phases)
        if parts is not None:
            return _build_parts_answer(answer, parts, causes), []
        return answer, [*causes, *rank_causes.altered_calls]

    def _order_causes(self, searched_causes: Sequence[Finding]) -> list[Finding]:
        """Return all causes in the order of precedence (docs/diagnosis.md#causes).

        States that a resumed run did not restore explain all other differences. Otherwise a lower precision comes
        before the causes that it explains, and the findings of detectors at the position of their calls.
        """
        if self.restore_findings:
            return [*self.restore_findings]
        causes = insert_precision(searched_causes, self.precision)
        causes = insert_detector_findings(self.detector_findings, causes, self.facts, self.runs)
        return [self._add_caller(causes[0]), *causes[1:]] if causes else []

    def _add_caller(self, cause: Finding) -> Finding:
        """Return a cause with the line that called its function, if its own line does not say which call it is."""
        side = self.runs.find_side(cause.op)
        if not cause.where or self.runs.find_line(cause.op, side) != cause.where:
            return cause
        return replace(cause, caller=self.runs.find_caller(cause.op, side))

    def _is_certain(self, causes: Sequence[Finding]) -> bool:
        """Return True if rounding cannot be the reason for the first cause."""
        return bool(causes) and (causes[0] in self.detector_findings or causes[0].reason.code in CERTAIN_CODES)

    def _describe_gaps(self, step_phases: PhaseComparison) -> list[str]:
        """Return sentences on calls and phases that the runs do not contain."""
        runs = self.runs
        return [*runs.describe_unfinished(), *runs.describe_unrecorded(), *step_phases.describe_missing_phases()]

    def _find_effective_move(self, selection: CallSelection) -> list[Finding]:
        """Return the call that the golden makes at another place.

        It is not a cause if loss and gradients show no effect of it, or if it follows the first difference in both
        runs, and is a consequence of it.
        """
        if self.moved_call is None:
            return []
        if selection.reported and not selection.is_grown:
            first = selection.reported[0].call
            if not can_precede(self.moved_call, (first.op, first.golden_op or first.op), self.runs):
                return []
        if not selection.reported and has_effect_before_optimizer(self.moved_call, self.runs):
            return [] if StepEffect(self.facts.ops).are_ends_same() else [self.moved_call]
        return [self.moved_call]

    def _excuse(self, step_phases: PhaseComparison) -> None:
        """Count the unpaired calls that replace calls of the other run, if too little was compared."""
        facts, runs = self.facts, self.runs
        if facts.tally.least_share < limits().min_agreement_share:
            same = StepEffect(facts.ops).are_ends_same()
            pairs = zip(step_phases.find_excused_calls(), find_replaced_calls(facts, runs, is_same=same))
            calls = (excused | replaced_calls for excused, replaced_calls in pairs)
            facts.tally.stood_for = [count_float_tensors(run, keys) for run, keys in zip(runs.both, calls)]

    def _iterate_notes(self, selection: CallSelection) -> Iterator[Note]:
        """Yield notes on the calls that differ, but are not causes."""
        harmless = [node for node in selection.altered_calls if is_harmless(node)]
        for kind, nodes, ending in (
            (NoteKind.NO_EFFECT, selection.without_effect, NO_EFFECT_ENDING),
            (NoteKind.NO_EFFECT, selection.without_trace, NO_TRACE_ENDING),
            (NoteKind.ROUNDING, selection.rounding, ROUNDING_ENDING),
            (NoteKind.HARMLESS, harmless, ""),
        ):
            for node in nodes:
                op = node.call.op
                yield Note(kind, f"{op} {self._add_names(node).why}{ending}", op)

    def _iterate_withdrawn(self, selection: CallSelection, altered_calls: Sequence[Finding]) -> Iterator[Finding]:
        """Yield what differs without an effect in this step, unless values that it receives explain it."""
        for node in (*selection.without_effect, *selection.without_trace):
            if node.reason.argument is not None or node.reason.cause in (
                CauseKind.INTRODUCED,
                CauseKind.NOT_FINITE,
            ):
                yield create_finding(self._add_names(node), self.runs.find_line)
        yield from (cause for cause in altered_calls if cause.reason.code == phase_comparison.KIND)

    def _add_names(self, node: Node) -> Node:
        return add_argument_names(node, self.runs, in_step=bool(self.step))

    def _advise(self, nodes: Sequence[Node], named: Set[str], may_decide: bool) -> list[str]:
        """Return what else to do next.

        Args:
            nodes: The calls that are reported.
            named: The names of the calls that causes name.
            may_decide: True if a second golden run would decide.
        """
        advice = [SECOND_GOLDEN_ADVICE] if may_decide else []
        if nodes and nodes[0].reason.cause is CauseKind.RECEIVED:
            candidates = find_altered_calls_after(self.facts, nodes[0].call)
            suspect = next((node for node in candidates if node.call.op not in named), None)
            if suspect is not None:
                arguments = format_different_arguments(self._add_names(suspect).reason)
                description = f"it was called with a different argument ({arguments})"
                advice.append(f"Look at {suspect.call.op}, too: {description}{ADVICE_ENDING}")
        return advice

    def _compare_parts(
        self, nodes: Sequence[Node], answer: Answer, step_phases: PhaseComparison
    ) -> PartsAgreement | None:
        """Return the agreement of parts with the whole, where only shapes and numbers of calls differ."""
        tally = self.facts.tally
        is_other_shape = bool(nodes) and nodes[0].reason.value.kind is DifferenceKind.SHAPE
        is_silent = not nodes and answer.outcome is not Outcome.AGREE and not tally.failing_at
        if self.is_interrupted or tally.unexcused > tally.lacking[SHIFTED] or not (is_other_shape or is_silent):
            return None
        if step_phases.is_effective or self.runs.are_rows:
            return None
        return compare_in_parts(self.runs, self.facts.ops.noise, are_sums_known=step_phases.are_gradients_same())


def _build_parts_answer(answer: Answer, parts: PartsAgreement, causes: Sequence[Finding]) -> Answer:
    """Return the verdict that parts agree with the whole; the causes become notes."""
    notes = (Note(NoteKind.HARMLESS, f"{cause.op} {cause.reason.detail}", cause.op) for cause in causes)
    return Answer(
        Outcome.AGREE, parts.sentence, (), answer.coverage, answer.missing, (), (*answer.notes, *notes),
        incomplete=answer.incomplete, conditions=answer.conditions,
        unknown_conditions=answer.unknown_conditions, reference=answer.reference,
    )  # fmt: skip

"""The causes of a rank: findings on the selected calls, and the origin upstream of the first call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from probe_core.model import Reason
from probe_core.model.answers import Finding
from probe_diagnosis.answer.causes.altered_calls import add_similar_calls, find_unpaired_calls, is_harmless
from probe_diagnosis.answer.causes.call_selection import CallSelection
from probe_diagnosis.answer.causes.call_tracer import CallTracer
from probe_diagnosis.answer.causes.changed_buffers import find_causes_in_buffers
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.condition_causes import ConditionCauses
from probe_diagnosis.answer.causes.findings import create_finding, fold_repeated_findings
from probe_diagnosis.answer.causes.phase_comparison import PhaseComparison, add_phase_evidence
from probe_diagnosis.answer.causes.precision_cause import explain_by_precision
from probe_diagnosis.answer.causes.producers import find_producers
from probe_diagnosis.answer.causes.upstream import UpstreamSearch
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.phases.phase_differences import PhaseDifference
from probe_diagnosis.timeline.rank_facts import RankFacts


@dataclass(frozen=True, slots=True)
class RankCauses:
    """The causes of a rank.

    Attributes:
        causes: The causes of differences, the first cause first.
        altered_calls: Calls with different arguments whose values agree.
        has_origin: True if the first cause is upstream of the first call that differs.
    """

    causes: Sequence[Finding]
    altered_calls: Sequence[Finding]
    has_origin: bool = False


def find_causes(
    facts: RankFacts,
    runs: ComparedRuns,
    step_phases: PhaseComparison,
    selection: CallSelection,
    conditions: ConditionCauses,
    *,
    is_explained: bool,
) -> RankCauses:
    """Return the causes of a rank.

    Args:
        facts: The facts about the calls of the rank.
        runs: Both runs.
        step_phases: The phases of the step.
        selection: The calls where the runs diverge.
        conditions: The conditions of both runs.
        is_explained: True if the baseline explains all differences beyond rounding, so that no phase is a cause.
    """
    call_causes = _describe_calls(facts, runs, selection)
    explanation = None
    if selection.reported:
        explanation = conditions.explain(call_causes.causes) or explain_by_precision(
            facts, runs, conditions.differences, call_causes.causes
        )
    if explanation is not None:
        return RankCauses([explanation.origin, *explanation.further], call_causes.altered_calls, has_origin=True)
    call_causes = _add_origin(facts, runs, step_phases, selection, call_causes)
    if call_causes.causes:
        return call_causes
    upstream = _create_upstream_search(facts, runs, step_phases, selection)
    causes: Sequence[Finding] = step_phases.find_setting()  # rounding does not explain a setting
    altered_calls = call_causes.altered_calls
    if not (selection.rounding or is_explained):
        causes = step_phases.find_lone_phase(effective=True) or upstream.find_lone_gradients()
        altered_calls = step_phases.add_lost_updates(altered_calls) or step_phases.find_lone_phase(effective=False)
    if not (causes or is_explained):
        causes = find_causes_in_buffers(facts, runs, step_phases, altered_calls)
        ops = {cause.op for cause in causes}
        altered_calls = [cause for cause in altered_calls if cause.op not in ops]
    graph = upstream.find_graph_difference()
    if graph is not None and not causes:
        reason = Reason(CauseKind.ALTERED_CALL.value, graph.reason.detail)
        altered_calls = [*altered_calls, replace(graph, reason=reason)]
    return RankCauses(causes, altered_calls)


def _describe_calls(facts: RankFacts, runs: ComparedRuns, selection: CallSelection) -> RankCauses:
    """Return the findings on the selected calls."""
    tracer, nodes = CallTracer(facts, runs), selection.reported
    findings = [
        tracer.trace_cause(create_finding(node, runs.find_line, () if number else selection.downstream), node)
        for number, node in enumerate(nodes)
    ]
    causes = [
        _add_producers(cause, runs) for cause in fold_repeated_findings(add_similar_calls(facts, findings, nodes))
    ]
    cause_ops = {cause.op for cause in causes}
    others = [
        create_finding(node, runs.find_line)
        for node in selection.altered_calls
        if not is_harmless(node) and node.call.op not in cause_ops
    ]
    altered_calls = fold_repeated_findings([*find_unpaired_calls(facts, runs, with_arguments=not nodes), *others])
    if not selection.is_grown:
        return RankCauses(causes, altered_calls)
    if altered_calls:
        causes, altered_calls = [*altered_calls, *causes], []
    if selection.reach:
        first = causes[0]
        evidence = {**first.evidence, "reaches": selection.reached, "reaches_times": selection.reach}
        causes[0] = replace(first, evidence=evidence)
    return RankCauses(causes, altered_calls)


def _add_origin(
    facts: RankFacts,
    runs: ComparedRuns,
    step_phases: PhaseComparison,
    selection: CallSelection,
    call_causes: RankCauses,
) -> RankCauses:
    """Return the causes, extended by their origin upstream or by evidence from the phases of the step."""
    nodes = selection.reported
    if not nodes:
        return call_causes
    upstream = _create_upstream_search(facts, runs, step_phases, selection)
    origin = upstream.explain(call_causes.causes[0], nodes[0]) if not selection.is_grown else None
    if origin is not None:
        causes = [origin, *upstream.exclude_origin(origin, call_causes.causes)]
        return RankCauses(causes, upstream.exclude_origin(origin, call_causes.altered_calls), has_origin=True)
    phase = step_phases.find_refinement(nodes[0])
    return call_causes if phase is None else _refine_by_phase(facts, runs, selection, phase)


def _refine_by_phase(
    facts: RankFacts, runs: ComparedRuns, selection: CallSelection, phase: PhaseDifference
) -> RankCauses:
    """Return the causes, where a phase of the step adds evidence to the first call."""
    first, *further = selection.reported
    refined_node = replace(first, reason=replace(first.reason, phases=phase.statement))
    call_causes = _describe_calls(facts, runs, replace(selection, reported=[refined_node, *further]))
    causes = [*call_causes.causes]
    index = len(causes) - 1 if selection.is_grown else 0
    causes[index] = add_phase_evidence(causes[index], phase, is_stated=refined_node.reason.states_phases)
    return replace(call_causes, causes=causes)


def _create_upstream_search(
    facts: RankFacts, runs: ComparedRuns, step_phases: PhaseComparison, selection: CallSelection
) -> UpstreamSearch:
    op = selection.reported[0].call.op if selection.reported else ""
    phases, effective = step_phases.find_phases_after_backward(op), step_phases.find_lone_phase(op, effective=True)
    return UpstreamSearch(
        facts, runs, phases, effective, step_phases.find_other_loss(), selection.altered_calls,
        is_after_backward=bool(op) and step_phases.is_after_backward(op), loses_gradients=step_phases.loses_gradients,
    )  # fmt: skip


def _add_producers(cause: Finding, runs: ComparedRuns) -> Finding:
    """Return a cause with the calls that returned its inputs."""
    run = runs.both[runs.find_side(cause.op)]
    return replace(cause, producers=find_producers(run, cause.op))

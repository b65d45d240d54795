"""The causes of a rank: findings on the selected calls, and what is upstream of the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from probe_core.model import Reason
from probe_core.model.answers import Finding
from probe_diagnosis.answer.condition_causes import ConditionCauses
from probe_diagnosis.answer.differently import is_harmless, lowered, with_the_same
from probe_diagnosis.answer.findings import finding, folded
from probe_diagnosis.answer.ladder import Ladders, with_phase
from probe_diagnosis.answer.precision_cause import explain_by_precision
from probe_diagnosis.answer.producers import producers
from probe_diagnosis.answer.runs import Runs
from probe_diagnosis.answer.selection import Selection
from probe_diagnosis.answer.tracing import Tracing
from probe_diagnosis.answer.upstream import Upstream
from probe_diagnosis.difference.reasons import Cause
from probe_diagnosis.phases.ladder_steps import Step
from probe_diagnosis.timeline.rank_facts import RankFacts


@dataclass(frozen=True, slots=True)
class Causes:
    """The causes of a rank.

    Attributes:
        causes: The causes of differences, the first one first.
        differently: Calls that were made differently, but whose values agree.
        has_origin: True if the first cause is upstream of the first call that differs.
    """

    causes: Sequence[Finding]
    differently: Sequence[Finding]
    has_origin: bool = False


def causes_of(
    facts: RankFacts,
    runs: Runs,
    ladders: Ladders,
    selection: Selection,
    conditions: ConditionCauses,
    *,
    is_explained: bool,
) -> Causes:
    """Return the causes of a rank.

    Args:
        facts: The facts about its calls.
        runs: Both runs.
        ladders: The phases of the step.
        selection: The calls where the runs diverge.
        conditions: The conditions of both runs.
        is_explained: True if the baseline explains what rounding does not, so that no phase is a cause.
    """
    found = _describe_calls(facts, runs, selection)
    explained = None
    if selection.named:
        explained = conditions.explain(found.causes) or explain_by_precision(
            facts, runs, conditions.differences, found.causes
        )
    if explained is not None:
        return Causes([explained.origin, *explained.further], found.differently, has_origin=True)
    found = _with_origin(facts, runs, ladders, selection, found)
    if found.causes:
        return found
    upstream = _upstream(facts, runs, ladders, selection)
    causes: Sequence[Finding] = ladders.settings()  # which rounding does not explain
    differently = found.differently
    if not (selection.rounding or is_explained):
        causes = ladders.alone(effective=True) or upstream.gradients_of_one_run()
        differently = ladders.beside(differently) or ladders.alone(effective=False)
    graph = upstream.graph_difference()
    if graph is not None and not causes:
        reason = Reason(Cause.DIFFERENTLY.value, graph.reason.detail)
        differently = [*differently, replace(graph, reason=reason)]
    return Causes(causes, differently)


def _describe_calls(facts: RankFacts, runs: Runs, selection: Selection) -> Causes:
    """Return the findings on the selected calls."""
    tracing, nodes = Tracing(facts, runs), selection.named
    traced = [
        tracing.traced(finding(node, runs.where, () if number else selection.downstream), node)
        for number, node in enumerate(nodes)
    ]
    causes = [_with_producers(cause, runs) for cause in folded(with_the_same(facts, traced, nodes))]
    named = {cause.op for cause in causes}
    others = [
        finding(node, runs.where)
        for node in selection.made_differently
        if not is_harmless(node) and node.facts.op not in named
    ]
    differently = folded([*lowered(facts, runs, with_arguments=not nodes), *others])
    if not selection.is_grown:
        return Causes(causes, differently)
    if differently:
        causes, differently = [*differently, *causes], []
    if selection.reach:
        first = causes[0]
        evidence = {**first.evidence, "reaches": selection.reached, "reaches_times": selection.reach}
        causes[0] = replace(first, evidence=evidence)
    return Causes(causes, differently)


def _with_origin(
    facts: RankFacts, runs: Runs, ladders: Ladders, selection: Selection, found: Causes
) -> Causes:
    """Return the causes with what is upstream of the first one, or with what the phases of the step show."""
    nodes = selection.named
    if not nodes:
        return found
    upstream = _upstream(facts, runs, ladders, selection)
    origin = upstream.explain(found.causes[0], nodes[0]) if not selection.is_grown else None
    if origin is not None:
        causes = [origin, *upstream.others(origin, found.causes)]
        return Causes(causes, upstream.others(origin, found.differently), has_origin=True)
    phase = ladders.refinement(nodes[0])
    return found if phase is None else _with_phase(facts, runs, selection, phase)


def _with_phase(facts: RankFacts, runs: Runs, selection: Selection, phase: Step) -> Causes:
    """Return the causes, with what a phase of the step shows of the first call."""
    first, *further = selection.named
    refined = replace(first, because=replace(first.because, phases=phase.statement))
    found = _describe_calls(facts, runs, replace(selection, named=[refined, *further]))
    causes = [*found.causes]
    place = len(causes) - 1 if selection.is_grown else 0
    causes[place] = with_phase(causes[place], phase, is_stated=refined.because.states_phases)
    return replace(found, causes=causes)


def _upstream(facts: RankFacts, runs: Runs, ladders: Ladders, selection: Selection) -> Upstream:
    phases, effective = ladders.behind(), ladders.alone(effective=True)
    return Upstream(
        facts, runs, phases, effective, selection.made_differently, loses_gradients=ladders.loses_gradients
    )


def _with_producers(cause: Finding, runs: Runs) -> Finding:
    """Return a cause with the calls that returned its inputs."""
    run = runs.both[runs.side_of(cause.op)]
    return replace(cause, producers=producers(run, cause.op))

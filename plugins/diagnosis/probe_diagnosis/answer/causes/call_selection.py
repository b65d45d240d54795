"""Calls where the runs of a rank diverge, sorted by their effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from probe_core.store.names import is_module
from probe_diagnosis.answer.causes.altered_calls import find_altered_calls, is_same_axis
from probe_diagnosis.answer.causes.changed_buffers import changes_buffers
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.phase_comparison import PhaseComparison
from probe_diagnosis.answer.causes.step_effect import StepEffect
from probe_diagnosis.difference.nodes import Node, RankHistory, can_show_gone
from probe_diagnosis.difference.permuted import mark_permuted
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.difference.search import SearchResult, list_differing_arguments, search
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.compared_calls import Basis
from probe_diagnosis.timeline.order import is_arranging
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.recorded import find_value


@dataclass(frozen=True, slots=True)
class CallSelection:
    """Calls where the runs of a rank diverge.

    Attributes:
        reported: The calls that causes are about, the first one first.
        downstream: The keys of the calls whose values differ after the first of these.
        without_effect: Calls that differ, while what follows them agrees.
        without_trace: Calls that differ, while the loss and the gradients of parameters agree.
        rounding: Calls whose difference is rounding, as the loss and the gradients of parameters show.
        altered_calls: Calls with another argument or dtype whose values agree, before the first cause.
        is_doubtful: True if statistics do not show that the first cause has an effect.
        is_continued: True if earlier steps agree except for rounding, which parameters carry into this one.
        reach: The largest difference of the loss and the gradients of parameters, in multiples of rounding.
        reached: The row that has it; empty if none differs.
    """

    reported: Sequence[Node] = ()
    downstream: Sequence[str] = ()
    without_effect: Sequence[Node] = ()
    without_trace: Sequence[Node] = ()
    rounding: Sequence[Node] = ()
    altered_calls: Sequence[Node] = ()
    is_doubtful: bool = False
    is_continued: bool = False
    reach: float = 0.0
    reached: str = ""

    @property
    def is_grown(self) -> bool:
        """True if no single call explains the first difference."""
        return bool(self.reported) and self.reported[0].reason.cause is CauseKind.GROWN

    @property
    def doubt(self) -> str:
        """The reason why the causes do not show that the runs diverged; empty if they do."""
        if self.is_doubtful and (self.is_continued or self.reach <= limits().min_grown_multiple):
            return "later values agree in their statistics again, which does not show that the values agree"
        if not self.reported:
            return ""
        reason = self.reported[0].reason
        if all(node.reason.value.basis == Basis.CHECKSUM and not node.reason.argument for node in self.reported):
            return "checksums do not say whether that is more than rounding"
        if reason.may_cancel:
            return "its inputs are so much larger that the difference may be rounding"
        if self.is_grown and reason.value.is_exact:
            return "rounding of its inputs may change such a choice"
        if self.is_grown and self.is_continued:
            return "it may be accumulated rounding since the first step"
        if self.is_grown and max(reason.largest_multiple, self.reach) <= limits().min_grown_multiple:
            return "it may be accumulated rounding"
        return ""


def select_calls(
    facts: RankFacts, runs: ComparedRuns, step_phases: PhaseComparison, history: RankHistory | None, *, in_step: bool
) -> CallSelection:
    """Return the calls where the runs of a rank diverge.

    Args:
        facts: The facts about its calls.
        runs: Both runs.
        step_phases: The phases of the step.
        history: The rounding that earlier steps carry into this one; None if earlier steps are not considered.
        in_step: True if the comparison is of one step of several.
    """
    search_result, without_trace = _search(facts, runs, step_phases, history)
    unseen = list(search_result.vanished)
    nodes = [*search_result.first, *search_result.further]
    if not nodes and (effective := [node for node in unseen if changes_buffers(node, step_phases)]):
        nodes, unseen = effective, [node for node in unseen if node not in effective]
    downstream = search_result.downstream[facts.rank]
    is_alone = len(nodes) == 1 and not downstream
    if is_alone and nodes[0].reason.cause is CauseKind.RECEIVED and nodes[0].call.outputs_agree:  # it has no effect
        unseen.append(nodes.pop())
    is_quiet = not (nodes or search_result.grown or downstream)
    doubtful = [
        node
        for node in unseen
        if node.reason.value.basis == Basis.STATISTICS and not (is_quiet and _has_vanished(node, facts.ops))
    ]
    reported = [add_argument_names(node, runs, in_step=in_step) for node in [*doubtful, *nodes] or search_result.grown]
    effect = StepEffect(facts.ops) if reported else None
    is_continued = history is not None
    is_rounding = effect is not None and all(effect.is_rounding(node, is_continued=is_continued) for node in reported)
    rounding, reported = (
        (reported, []) if is_rounding else ([], [_mark_permuted_value(node, runs) for node in reported])
    )
    without_effect = [node for node in unseen if node not in doubtful]
    reach, reached = effect.find_largest_effect() if effect is not None else (0.0, "")
    return CallSelection(
        reported,
        downstream,
        without_effect,
        without_trace,
        rounding,
        [
            add_argument_names(node, runs, in_step=in_step)
            for node in _select_altered_calls(facts, runs, reported, without_effect)
        ],
        bool(doubtful) and not nodes,
        is_continued,
        reach,
        reached,
    )


def add_argument_names(node: Node, runs: ComparedRuns, *, in_step: bool) -> Node:
    """Return a node whose reason has the names of its arguments.

    Args:
        node: The call.
        runs: Both runs.
        in_step: True if the reason is about one step of several.
    """
    reason, op = node.reason, node.call.op
    if reason.argument is not None:
        others = [argument for argument in list_differing_arguments(node.call) if argument is not reason.argument]
        arguments = tuple(
            (runs.argument_name(op, argument.row.removeprefix(f"{op}.")), argument)
            for argument in (reason.argument, *others)
        )
        reason = replace(reason, arguments=arguments)
    return replace(node, reason=replace(reason, in_step=in_step))


def _mark_permuted_value(node: Node, runs: ComparedRuns) -> Node:
    """Return a node whose reason states if its values are the same in another order."""
    reason = node.reason
    return replace(node, reason=replace(reason, value=mark_permuted(reason.value, node.call, runs.both)))


def _find_carried_values(
    facts: RankFacts, runs: ComparedRuns, step_phases: PhaseComparison
) -> set[tuple[float, float]]:
    """Return distance and scale of the parameters that differ by rounding that an optimizer amplified."""
    statistics = step_phases.collect_carried_statistics()
    if not statistics:
        return set()
    calls, table = facts.ops, facts.ops.table
    carried_values: set[tuple[float, float]] = set()
    for line in np.flatnonzero(table.differs & table.is_tensor & table.is_source).tolist():
        key = calls.keys[calls.call_numbers[line]]
        value = find_value(runs.both[0], key, table.get_row_name(line, key))
        if value is not None and tuple(value.statistics) in statistics:
            carried_values.add((table.lines["distance"].item(line), table.lines["scale"].item(line)))
    return carried_values


def _search(
    facts: RankFacts, runs: ComparedRuns, step_phases: PhaseComparison, history: RankHistory | None
) -> tuple[SearchResult, list[Node]]:
    """Return the result of the search, and the calls that differ without a trace in loss and gradients.

    What the optimizer does after these is searched by itself.
    """
    histories = {facts.rank: history} if history is not None else {}
    carried = {facts.rank: _find_carried_values(facts, runs, step_phases)} if history is not None else {}
    search_result = search({facts.rank: facts.ops}, histories=histories, carried=carried)
    reported = search_result.first or search_result.grown
    if not (reported or search_result.vanished):
        return search_result, []
    effect = StepEffect(facts.ops)
    is_step_same = step_phases.are_gradients_same() and step_phases.are_parameters_same()
    isolated = effect.find_isolated_calls() if reported and is_step_same else set()
    if isolated:
        others = [facts.ops[number] for number in range(len(facts.ops)) if number not in isolated]
        rest = search({facts.rank: others}, histories=histories, carried=carried)
        if not (rest.first or rest.grown or rest.vanished):
            return rest, [*reported]
    is_rounding = step_phases.is_rounding_before()
    without_trace = effect.find_traceless_calls(
        reported, search_result.vanished, is_rounding_before=is_rounding, is_continued=history is not None
    )
    if not without_trace or any(changes_buffers(node, step_phases) for node in without_trace):
        return search_result, []
    calls, known_values = effect.find_calls_after_ends()
    return search({facts.rank: calls}, known_values, histories, carried, follows_backward=True), without_trace


def _select_altered_calls(
    facts: RankFacts, runs: ComparedRuns, reported: Sequence[Node], without_effect: Sequence[Node]
) -> list[Node]:
    """Return the calls with another argument or dtype whose values agree, before the first cause.

    Calls within a module that passes no difference on are left out.
    """
    modules = {node.call.modules[0] for node in without_effect if node.call.modules}
    return [
        node
        for node in find_altered_calls(facts, reported[0].call if reported else None)
        if not (modules.intersection(node.call.modules) or is_same_axis(runs, node))
    ]


def _has_vanished(node: Node, calls: CallColumns) -> bool:
    """Return True if statistics show that a difference had no effect: many later calls agree in theirs."""
    if not can_show_gone(node):
        return False
    differing = np.flatnonzero(calls.has_any(calls.table.differs & calls.table.is_tensor))
    first = differing.max(initial=-1) + 1
    agreeing = (calls.keys[number] for number in np.flatnonzero(calls.outputs_agree).tolist() if number >= first)
    confirming = sum(not (is_module(key) or is_arranging(key)) for key in agreeing)
    return confirming >= limits().min_confirming_calls

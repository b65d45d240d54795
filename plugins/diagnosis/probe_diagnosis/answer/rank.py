"""The answer on one rank, from the facts about its ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from probe_core.model import Reason
from probe_core.model.answers import Answer, Finding, Note, NoteKind, Outcome
from probe_diagnosis.answer.detected import in_order
from probe_diagnosis.answer.differently import (
    called_differently_behind,
    is_harmless,
    is_same_axis,
    lowered,
    made_differently,
    with_the_same,
)
from probe_diagnosis.answer.effect import Effect
from probe_diagnosis.answer.findings import finding, folded, with_producers
from probe_diagnosis.answer.ladder import Ladders
from probe_diagnosis.answer.parts import Parts, in_parts
from probe_diagnosis.answer.producers import producers
from probe_diagnosis.answer.replaced import floats_in, replaced
from probe_diagnosis.answer.runs import Runs
from probe_diagnosis.answer.tracing import Tracing
from probe_diagnosis.answer.upstream import Upstream
from probe_diagnosis.answer.verdict import answer_of
from probe_diagnosis.difference.reasons import Cause
from probe_diagnosis.difference.search import Searched, differing_arguments, search
from probe_diagnosis.difference.walking import Node, Past, can_show_gone
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.coverage import SHIFTED
from probe_diagnosis.timeline.order import is_arranging
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.views import DifferenceKind, is_module

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
    """

    def __init__(
        self, facts: RankFacts, runs: Runs, *, step: str = "", interrupted: bool, several: bool = False,
        moved: Finding | None = None, past: Past | None = None, detected: Sequence[Finding] = (),
    ) -> None:  # fmt: skip
        self._facts = facts
        self._runs = runs
        self._step = step
        self._interrupted = interrupted
        self._several = several
        self._moved = moved
        self._past = past
        self._detected = detected

    def answer(self, baseline: Mapping[str, Any] | None = None) -> tuple[Answer, list[Finding]]:
        """Return the verdict, and the causes that it rests on.

        Args:
            baseline: The counts of the baseline; None without one.
        """
        facts, runs = self._facts, self._runs
        ladders = Ladders(facts, runs, self._past.noise if self._past is not None else 0.0)
        searched, traceless = self._searched(ladders)
        nodes = [*searched.first, *searched.further]
        behind = searched.behind[facts.rank]
        unseen = list(searched.vanished)
        if len(nodes) == 1 and not behind and _has_no_effect(nodes[0]):
            unseen += [nodes.pop()]
        is_quiet = not (nodes or searched.grown or behind)
        doubtful = [
            node
            for node in unseen
            if node.because.value.by == "statistics" and not (is_quiet and _has_gone(node, facts.ops))
        ]
        is_doubtful = bool(doubtful) and not nodes  # what follows agrees in its statistics again
        nodes = [self._told(node) for node in [*doubtful, *nodes] or searched.grown]
        effect = Effect(facts.ops) if nodes else None
        is_continued = self._past is not None
        rounded = [
            node
            for node in nodes
            if effect is not None and effect.is_rounding(node, is_continued=is_continued)
        ]
        if len(rounded) == len(nodes):
            nodes = []
        else:
            rounded = []
        vanished = {node.facts.within[0] for node in unseen if node.facts.within and node not in doubtful}
        made = [
            self._told(node)
            for node in made_differently(facts, nodes[0].facts if nodes else None)
            if not (vanished.intersection(node.facts.within) or is_same_axis(runs, node))
        ]
        tracing = Tracing(facts, runs)
        causes = [
            tracing.traced(finding(node, runs.where, behind if n == 0 else ()), node)
            for n, node in enumerate(nodes)
        ]
        causes = [self._with_producers(cause) for cause in folded(with_the_same(facts, causes, nodes))]
        told = {cause.op for cause in causes}
        others = [
            finding(node, runs.where) for node in made if not is_harmless(node) and node.facts.op not in told
        ]
        differently = folded([*lowered(facts, runs, with_arguments=not nodes), *others])
        is_grown = bool(nodes) and nodes[0].because.cause is Cause.GROWN
        if is_grown and differently:
            causes, differently = [*differently, *causes], []
        reach = effect.reaches() if effect is not None else (0.0, "")
        if reach[0] and is_grown:
            causes[0] = replace(
                causes[0], evidence={**causes[0].evidence, "reaches": reach[1], "reaches_times": reach[0]}
            )
        doubt = _doubt(nodes, is_doubtful, reach[0], is_continued=is_continued)
        upstream = Upstream(facts, runs, ladders.behind(), ladders.alone(effective=True), made)
        origin = upstream.explain(causes[0], nodes[0]) if nodes and not is_grown else None
        if origin is None:
            causes = ladders.refined(causes, nodes)
        else:
            causes, differently = (
                [origin, *upstream.others(origin, causes)],
                upstream.others(origin, differently),
            )
        if self._moved is not None:
            causes = [self._moved, *causes]
        graph = None if causes else upstream.graph_difference()
        if not (causes or rounded or (baseline and baseline["raised"])):
            causes = ladders.alone(effective=True) or upstream.gradients_of_one_run()
            differently = ladders.beside(differently) or ladders.alone(effective=False)
        if graph is not None and not causes:
            reason = Reason(Cause.DIFFERENTLY.value, graph.reason.detail)
            differently = [*differently, replace(graph, reason=reason)]
        causes = in_order(self._detected, causes, facts, runs)
        if causes and self._detected and causes[0] is self._detected[0]:
            doubt = ""
        if not causes and facts.tally.least_share < limits().enough:
            same = Effect(facts.ops).are_ends_same()
            pairs = zip(ladders.excused(), replaced(facts, runs, is_same=same))
            both = (one | other for one, other in pairs)
            facts.tally.stood_for = [floats_in(run, keys) for run, keys in zip(runs.both, both)]
        notes = [
            *self._notes(NoteKind.NO_EFFECT, [node for node in unseen if node not in doubtful], GONE),
            *self._notes(NoteKind.NO_EFFECT, traceless, NO_TRACE),
            *self._notes(NoteKind.ROUNDING, rounded, ROUNDED),
            *self._notes(NoteKind.HARMLESS, [node for node in made if is_harmless(node)]),
        ]
        answer = answer_of(
            causes,
            differently,
            facts.tally,
            notes=notes,
            doubt=doubt,
            interrupted=self._interrupted,
            unfinished=[*runs.unfinished(), *runs.unrecorded(), *ladders.missing()],
            measured=baseline,
            advice=self._advice(() if origin else nodes, told, is_grown and bool(doubt) and not baseline),
            several=self._several,
        )
        parts = self._parts(nodes, answer, ladders)
        if parts is not None:
            by_parts = (Note(NoteKind.HARMLESS, f"{one.op} {one.reason.detail}", one.op) for one in causes)
            agreed = Answer(
                Outcome.AGREE, parts.sentence, (), answer.coverage, answer.missing, (),
                (*answer.notes, *by_parts), incomplete=answer.incomplete,
            )  # fmt: skip
            return agreed, []
        return answer, [*causes, *differently]

    def _searched(self, ladders: Ladders) -> tuple[Searched, list[Node]]:
        """Return the result of the search, and the calls that differ without a trace in loss and gradients.

        What the optimizer does behind these is searched by itself.
        """
        facts = self._facts
        pasts = {facts.rank: self._past} if self._past is not None else {}
        searched = search({facts.rank: facts.ops}, pasts=pasts)
        named = searched.first or searched.grown
        if not (named or searched.vanished):
            return searched, []
        effect = Effect(facts.ops)
        is_rounding = ladders.is_rounding_before()
        traceless = effect.traceless(named, searched.vanished, is_rounding_before=is_rounding)
        if not traceless:
            return searched, []
        behind, known = effect.behind()
        return search({facts.rank: behind}, known, pasts), traceless

    def _notes(self, kind: NoteKind, nodes: Sequence[Node], ending: str = "") -> Iterator[Note]:
        """Yield a note on each call, whose sentence has an ending."""
        for node in nodes:
            op = node.facts.op
            yield Note(kind, f"{op} {self._told(node).why}{ending}", op)

    def _advice(self, nodes: Sequence[Node], told: Set[str], second: bool) -> list[str]:
        """Return what else to do next.

        Args:
            nodes: The calls that are reported.
            told: The names of the calls that causes name.
            second: True if a second golden run would decide.
        """
        found = [SECOND] if second else []
        if nodes and nodes[0].because.cause is Cause.TAKEN_IN:
            behind = called_differently_behind(self._facts, nodes[0].facts)
            other = next((node for node in behind if node.facts.op not in told), None)
            if other is not None:
                made = f"it was called with a different argument ({self._told(other).because.told_argument})"
                found.append(f"Look at {other.facts.op}, too: {made}{UNLESS}")
        return found

    def _told(self, node: Node) -> Node:
        """Return a node whose reason says which step it is about, and the names of its arguments."""
        because, op = node.because, node.facts.op
        if because.argument is not None:
            others = [one for one in differing_arguments(node.facts) if one is not because.argument]
            arguments = tuple(
                (self._runs.argument_name(op, one.row.removeprefix(f"{op}.")), one)
                for one in (because.argument, *others)
            )
            because = replace(because, arguments=arguments)
        return replace(node, because=replace(because, in_step=bool(self._step)))

    def _with_producers(self, cause: Finding) -> Finding:
        """Return a cause with the calls that returned its inputs."""
        run = self._runs.both[self._runs.side_of(cause.op)]
        return with_producers(cause, producers(run, cause.op))

    def _parts(self, nodes: Sequence[Node], answer: Answer, ladders: Ladders) -> Parts | None:
        """Return the agreement of parts with the whole, where only shapes and numbers of calls differ."""
        tally = self._facts.tally
        is_other_shape = bool(nodes) and nodes[0].because.value.kind is DifferenceKind.SHAPE
        is_silent = not nodes and answer.outcome is not Outcome.AGREE and not tally.failing_at
        if self._interrupted or tally.unexcused > tally.lacking[SHIFTED] or not (is_other_shape or is_silent):
            return None
        if ladders.is_effective:
            return None
        return in_parts(self._runs, self._facts.ops.noise, are_sums_known=ladders.are_gradients_same())


def _has_no_effect(node: Node) -> bool:
    """Return True if an op receives values that differ, and what it returns agrees all the same."""
    return node.because.cause is Cause.TAKEN_IN and node.facts.agrees


def _has_gone(node: Node, calls: CallColumns) -> bool:
    """Return True if statistics show that a difference had no effect: many later calls agree in theirs."""
    if not can_show_gone(node):
        return False
    differing = np.flatnonzero(calls.has_any(calls.table.differs & calls.table.is_tensor))
    first = differing.max(initial=-1) + 1
    agreeing = (calls.keys[number] for number in np.flatnonzero(calls.agrees).tolist() if number >= first)
    confirming = sum(not (is_module(key) or is_arranging(key)) for key in agreeing)
    return confirming >= limits().confirming


def _doubt(nodes: Sequence[Node], is_doubtful: bool, reach: float, *, is_continued: bool) -> str:
    """Return the reason why differences do not show that the runs diverged; empty if they do.

    Args:
        nodes: The calls that are reported.
        is_doubtful: True if the first of them has no effect that statistics show.
        reach: The largest difference of the loss and the gradients of parameters, in multiples of rounding.
        is_continued: True if earlier steps agree but for rounding, which parameters carry into this one.
    """
    if is_doubtful and (is_continued or reach <= limits().grown):
        return "what follows agrees in its statistics again, which does not show that the values agree"
    if nodes and all(node.because.value.by == "checksum" and not node.because.argument for node in nodes):
        return "checksums do not say whether that is more than rounding"
    if nodes and nodes[0].because.may_cancel:
        return "what it receives is so much larger that the difference may be rounding"
    is_grown = bool(nodes) and nodes[0].because.cause is Cause.GROWN
    if is_grown and nodes[0].because.value.is_exact:
        return "rounding of its inputs may decide such a choice otherwise"
    if is_grown and is_continued:
        return "it may be rounding that has added up since the first step"
    if is_grown and max(nodes[0].because.times, reach) <= limits().grown:
        return "it may be rounding that has added up"
    return ""

"""The answer on one rank, from the facts about its ops."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model.answers import Answer, Finding
from probe_diagnosis.answer.differently import is_none, lowered, made_differently, with_the_same
from probe_diagnosis.answer.findings import finding, folded
from probe_diagnosis.answer.kept import RankFacts
from probe_diagnosis.answer.ladder import Ladders
from probe_diagnosis.answer.runs import Runs
from probe_diagnosis.answer.tracing import Tracing
from probe_diagnosis.answer.verdict import answer_of
from probe_diagnosis.difference.reasons import Cause
from probe_diagnosis.difference.search import search
from probe_diagnosis.difference.walking import Node

GROWN = 10
"""Multiple of rounding from which on values that no single call explains count as diverged."""

GONE = ", but what the calls behind it return agrees"
"""End of a note on a difference that had no effect."""


class Found:
    """Findings on one rank.

    Args:
        facts: The facts about its ops.
        runs: Both runs.
        interrupted: True if rows are missing.
    """

    def __init__(self, facts: RankFacts, runs: Runs, *, interrupted: bool) -> None:
        self._facts = facts
        self._runs = runs
        self._interrupted = interrupted

    def answer(self) -> tuple[Answer, list[Finding]]:
        """Return the verdict, and the causes that it rests on."""
        facts, runs = self._facts, self._runs
        searched = search({facts.rank: facts.ops})
        nodes = [*searched.first, *searched.further]
        behind = searched.behind[facts.rank]
        unseen = list(searched.vanished)
        if len(nodes) == 1 and not behind and _has_no_effect(nodes[0]):
            unseen += [nodes.pop()]
        doubtful = [node for node in unseen if node.because.value.by == "statistics"]
        is_doubtful = bool(doubtful) and not nodes  # what follows agrees in its statistics again
        nodes = [*doubtful, *nodes] or searched.grown
        tracing = Tracing(facts, runs)
        causes = [
            tracing.traced(finding(node, runs.where, behind if n == 0 else ()), node)
            for n, node in enumerate(nodes)
        ]
        causes = folded(with_the_same(facts, causes, nodes))
        made = list(made_differently(facts, nodes[0].facts if nodes else None))
        others = [finding(node, runs.where) for node in made if not is_none(node)]
        differently = folded([*lowered(facts, runs, with_arguments=not nodes), *others])
        is_grown = bool(nodes) and nodes[0].because.cause is Cause.GROWN
        if is_grown and differently:
            causes, differently = [*differently, *causes], []
        ladders = Ladders(facts, runs)
        causes = ladders.refined(causes, nodes)
        if not causes:
            causes = ladders.alone(effective=True)
            differently = ladders.beside(differently) or ladders.alone(effective=False)
        notes = [
            node for node in [*unseen, *(node for node in made if is_none(node))] if node not in doubtful
        ]
        answer = answer_of(
            causes,
            differently,
            facts.tally,
            notes=[f"{node.facts.op} {node.why}{'' if is_none(node) else GONE}" for node in notes],
            doubt=_doubt(nodes, is_doubtful),
            interrupted=self._interrupted,
            unfinished=[*runs.unfinished(), *ladders.missing()],
        )
        return answer, [*causes, *differently]


def _has_no_effect(node: Node) -> bool:
    """Return True if an op takes in values that differ, and what it returns agrees all the same."""
    return node.because.cause is Cause.TAKEN_IN and node.facts.agrees


def _doubt(nodes: Sequence[Node], is_doubtful: bool) -> str:
    """Return the reason why differences do not show that the runs diverged; empty if they do."""
    if is_doubtful:
        return "what follows agrees in its statistics again, which does not show that the values agree"
    if nodes and all(node.because.value.by == "checksum" and not node.because.argument for node in nodes):
        return "checksums do not say whether that is more than rounding"
    if nodes and nodes[0].because.may_cancel:
        return "what it takes in is so much larger that the difference may be rounding"
    if nodes and nodes[0].because.cause is Cause.GROWN and nodes[0].because.times <= GROWN:
        return "it may be rounding that has added up"
    return ""

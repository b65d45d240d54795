"""A more precise third run, against which target and golden are measured (``--reference``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from probe_core.errors import UserError, format_count
from probe_core.model.plan import Plan
from probe_core.plugins.protocols import Comparer, OpenComparison
from probe_core.store.layout import RunPair
from probe_diagnosis.answer.references.further_passes import ALIGN, simplify_plan
from probe_diagnosis.answer.references.reference_excuses import ExcuseCounts, ReferenceDistances, excuse
from probe_diagnosis.answer.references.third_run import (
    Refusals,
    check_third_run,
    collect_aligned_facts,
    drop_mapping,
    find_record,
)
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.search import search
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.compared_calls import ValueState
from probe_diagnosis.timeline.rank_facts import RankFacts

REFUSALS = Refusals(
    "golden itself, which is always nearest to it",
    "target itself, which is always nearest to it",
    "Give a run in higher precision.",
)


def ask(plan: Plan, values: Mapping[str, Any], asked: Set[str]) -> Plan:
    """Return the plan with ``--reference``.

    Args:
        plan: The plan without it.
        values: The path of the more precise run.
        asked: The names of the options that the user gave.

    Raises:
        UserError: The path does not exist, or ``-da`` is set as well.
    """
    path: Path = values["run"]
    check_third_run(
        plan, path, "--reference", "Give the directory of a run in float64, recorded with probe run --double."
    )
    return plan.with_options(reference=path)


@dataclass(slots=True)
class ReferenceRun:
    """A more precise run of one rank.

    Attributes:
        path: The path that was given.
        unused: The reason why the reference is not used; empty if it is.
        calls: Number of calls of the golden.
        covered: Number of these that were compared with the reference.
        excused: What it excuses.
        record: Its record file that belongs to the rank; None if it is not used.
    """

    path: str
    unused: str = ""
    calls: int = 0
    covered: int = 0
    excused: ExcuseCounts = field(default_factory=ExcuseCounts)
    record: Path | None = None

    def plain(self) -> dict[str, Any]:
        """Return the counts as JSON data."""
        return {
            "path": self.path,
            "unused": self.unused,
            "comparisons": 1,
            "unused_in": int(bool(self.unused)),
            "calls": self.calls,
            "covered": self.covered,
            **asdict(self.excused),
        }


NOT_NEEDED_REASON = "target and golden agree without it"
"""Reason why a reference is not used."""


def consider_reference(
    facts: RankFacts, opened: OpenComparison, pair: RunPair, compare: Comparer, *, needed: bool, aligned: bool
) -> ReferenceRun | None:
    """Excuse the values in which the target is as near to the reference as the golden.

    Args:
        facts: The facts about the rank, whose differences are changed.
        opened: The comparison.
        pair: The step and the rank.
        compare: Function that makes a further comparison.
        needed: False if target and golden agree without the reference.
        aligned: True if the facts are those of aligned calls.

    Returns:
        What the reference excuses; None if the plan names none.
    """
    path: Path | None = opened.plan.options.get("reference")
    if path is None:
        return None
    result = ReferenceRun(str(path), calls=len(opened.golden))
    if not needed:
        result.unused = NOT_NEEDED_REASON
        return result
    try:
        record = find_record(path, opened.plan, pair, REFUSALS)
        run_facts = _compare(opened.plan, pair, record, compare, aligned=aligned)
    except UserError as error:
        result.unused = error.what.rstrip(".")
        return result
    result.covered = sum(any(value.basis for value in call.values) for call in run_facts[1].ops)
    result.unused = _find_refusal(facts, *run_facts)
    if not result.unused:
        result.record = record
        result.excused = excuse(facts, ReferenceDistances(run_facts[0].ops, run_facts[1].ops, facts.ops.noise))
    return result


def _compare(
    plan: Plan, pair: RunPair, record: Path, compare: Comparer, *, aligned: bool
) -> tuple[RankFacts, RankFacts]:
    """Compare target and golden of a rank with its reference, and return the facts about both.

    The reference is a run of the golden's program: the target is paired with it as with the golden.

    Raises:
        UserError: The reference cannot be compared.
    """
    of_target = replace(simplify_plan(plan), policies=(), matcher=ALIGN if aligned else plan.matcher)
    return (
        collect_aligned_facts(compare, of_target, pair.target, record, pair.rank),
        collect_aligned_facts(compare, drop_mapping(plan), pair.golden, record, pair.rank),
    )


def _find_refusal(facts: RankFacts, target: RankFacts, golden: RankFacts) -> str:
    """Return the reason why a run cannot be the reference; empty if it can.

    If target and golden agree in the first values that differ from the run, the run has other weights, data or random
    numbers.
    """
    limit = limits().reference
    share = golden.tally.share_of_golden
    if share < limit.shared:
        return f"only {share:.0%} of the golden's floating-point tensors could be compared with it"
    nodes = [_find_first(run_facts) for run_facts in (target, golden)]
    if nodes[0] is None or nodes[1] is None:
        return ""
    number = facts.ops.numbers_by_key.get(nodes[0].call.op)
    keys = [node.call.golden_op or node.call.op for node in nodes if node is not None]
    if number is None or facts.ops.golden_ops.get(number, facts.ops.keys[number]) != nodes[1].call.op:
        return ""
    row = nodes[0].reason.value.row
    agreeing = {value.row for value in facts.ops[number].values if value.state == ValueState.SAME}
    if keys[0] == keys[1] and row in agreeing and min(map(_get_relative_distance, nodes)) > limit.odd:
        return f"target and golden agree in {row}, and both are far from it; is it a run with the same seed?"
    return ""


def _find_first(facts: RankFacts) -> Node | None:
    """Return the first call where a run and the reference diverge; None for none."""
    return next(iter(search({facts.rank: facts.ops}).first), None)


def _get_relative_distance(node: Node | None) -> float:
    """Return the relative distance of the value that shows a difference; 0 if it has no size."""
    if node is None or not math.isfinite(node.reason.value.distance):
        return 0.0
    value = node.reason.value
    return value.distance / value.scale if value.scale else 0.0


def describe_excused_values(reference: Mapping[str, Any]) -> str:
    """Return a clause on the values that a reference excuses; empty if there are none."""
    if not reference or not reference["values"]:
        return ""
    more = f", or at most {limits().reference.factor:g} times as far" if reference["farther"] else ""
    values, calls = format_count(reference["values"], "value"), format_count(reference["calls_excused"], "call")
    ratio = reference["ratio"]
    first = f"the first in {reference['first']}"
    if math.isinf(ratio):
        first += ", where the target equals the reference"
    elif ratio > 1:
        first += f", where the golden is {ratio:.3g} times farther"
    return (
        f"where they differ, the target is at least as near to the reference as the golden{more} "
        f"({values} of {calls}, {first})"
    )


def describe_reference(reference: Mapping[str, Any]) -> str:
    """Return a sentence on a reference: its share of the calls, and the reason where it is not used."""
    path, unused, total = reference["path"], reference["unused_in"], reference["comparisons"]
    if unused == total:
        return f"the reference {path} was not used: {reference['unused']}"
    calls = format_count(reference["calls"], "call")
    text = f"the reference {path} covers {reference['covered']:,} of the golden's {calls}"
    if reference["jumps"]:
        many = format_count(reference["jumps"], "excused call")
        text += (
            f"; in {many}, the first of them {reference['first_jump']}, the target's distance from it grows "
            "and the golden's does not, so that a fault smaller than the golden's distance would not show"
        )
    if unused:
        text += f"; it was not used in {unused} of {total} comparisons: {reference['unused']}"
    return text


COUNT_NAMES = (
    "comparisons",
    "unused_in",
    "calls",
    "covered",
    "values",
    "calls_excused",
    "farther",
    "rest",
    "jumps",
)


def merge_references(references: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the counts of several comparisons as those of one."""
    whole: dict[str, Any] = {}
    for reference in references:
        if not whole:
            whole = dict(reference)
            continue
        if not whole["first"]:
            whole |= {name: reference[name] for name in ("first", "ratio")}
        whole |= {name: whole[name] + reference[name] for name in COUNT_NAMES}
        for name in ("unused", "first_jump"):
            whole[name] = whole[name] or reference[name]
    return whole

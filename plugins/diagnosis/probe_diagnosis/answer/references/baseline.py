"""The baseline: a second golden run, whose differences from the golden are not causes (``--baseline``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from probe_core.errors import UserError, format_count
from probe_core.model.batches import RowBatch
from probe_core.model.plan import Plan
from probe_core.plugins.protocols import Comparer, OpenComparison
from probe_core.store.layout import RunPair
from probe_diagnosis.answer.references.further_passes import ALIGN, collect_facts
from probe_diagnosis.answer.references.third_run import Refusals, check_third_run, drop_mapping, find_record
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.difference.search import search
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.compared_calls import Basis, ComparedCall, ValueComparison, ValueState
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.value_table import UNJUDGED_CODE, ValueTable

REFUSALS = Refusals(
    "golden itself and explains nothing",
    "target itself and would explain every difference",
    "Give a second golden run.",
)


def ask(plan: Plan, values: Mapping[str, Any], asked: Set[str]) -> Plan:
    """Return the plan with ``--baseline``.

    Args:
        plan: The plan without it.
        values: The path of the second golden run.
        asked: The names of the options that the user gave.

    Raises:
        UserError: The path does not exist, or ``-da`` is set as well.
    """
    path: Path = values["run"]
    check_third_run(plan, path, "--baseline", "Give the directory of a second golden run.")
    return plan.with_options(baseline=path)


class Floor(NamedTuple):
    """Difference of one value between both golden runs; ``basis`` names the data that it was judged by."""

    distance: float
    basis: Basis


@dataclass(slots=True)
class Baseline:
    """Differences between both golden runs of one rank.

    Attributes:
        path: The path that was given.
        unused: The reason why the baseline is not used; empty if it is.
        calls: Number of calls of the golden.
        covered: Number of these that were compared with the baseline.
        raised: Number of calls with a value in which the baseline explains more than rounding does.
        floors: The differences, by the names of the golden's values.
    """

    path: str
    unused: str = ""
    calls: int = 0
    covered: int = 0
    raised: int = 0
    floors: dict[str, Floor] = field(default_factory=dict)

    def record_batch(self, batch: RowBatch, table: ValueTable) -> None:
        """Record the differences of a batch of the baseline, compared with the golden."""
        lines = table.lines
        is_judged = lines["state"] != UNJUDGED_CODE
        self.covered += len(batch.find_ops(is_judged & table.is_tensor))
        is_checksum = np.isin(lines["basis"], [Basis.CHECKSUM, Basis.EXACT_CHECKSUM])
        has_size = np.isfinite(lines["distance"]) | is_checksum | ~table.is_tensor
        is_floor = is_judged & batch.golden.is_present & (lines["distance"] != 0) & has_size
        wanted = np.flatnonzero(is_floor)
        names = batch.golden.columns.row_names(batch.golden.lines[wanted])
        for name, distance, basis in zip(names, lines["distance"][wanted].tolist(), lines["basis"][wanted].tolist()):
            self.floors[name] = Floor(distance, Basis(basis))

    def plain(self) -> dict[str, Any]:
        """Return the counts as JSON data."""
        return {
            "path": self.path,
            "unused": self.unused,
            "comparisons": 1,
            "unused_in": int(bool(self.unused)),
            "calls": self.calls,
            "covered": self.covered,
            "raised": self.raised,
        }


def measure_baseline(opened: OpenComparison, pair: RunPair, compare: Comparer) -> Baseline | None:
    """Return the differences between both golden runs; None if the plan names no baseline.

    Args:
        opened: The comparison.
        pair: The step and the rank.
        compare: Function that makes a further comparison.
    """
    path: Path | None = opened.plan.options.get("baseline")
    if path is None:
        return None
    baseline = Baseline(str(path), calls=len(opened.golden))
    try:
        facts = _compare_with_golden(opened.plan, pair, path, baseline, compare)
    except UserError as error:
        baseline.unused = error.what.rstrip(".")
    else:
        baseline.unused = _find_refusal(facts)
    if baseline.unused:
        baseline.floors.clear()
    return baseline


def _compare_with_golden(plan: Plan, pair: RunPair, path: Path, baseline: Baseline, compare: Comparer) -> RankFacts:
    """Compare the baseline of a rank with its golden, and return the facts.

    Names are not mapped, because both are golden runs. Calls whose counts differ are aligned.

    Raises:
        UserError: The baseline has no such rank, or cannot be compared with the golden.
    """
    record = find_record(path, plan, pair, REFUSALS)
    plan = drop_mapping(plan)
    facts = collect_facts(compare(plan, record, pair.golden, pair.rank), baseline.record_batch)
    if facts.is_shifted:
        baseline.covered = 0
        baseline.floors.clear()
        plan = replace(plan, matcher=ALIGN)
        facts = collect_facts(compare(plan, record, pair.golden, pair.rank), baseline.record_batch)
    return facts


def _find_refusal(facts: RankFacts) -> str:
    """Return the reason why a run cannot be the baseline; empty if it can."""
    limit = limits().baseline
    share = facts.tally.share_of_golden
    if share < limit.shared:
        return f"only {share:.0%} of the golden's floating-point tensors could be compared with it"
    search_result = search({facts.rank: facts.ops})
    for node in [*search_result.first, *search_result.further]:
        reason, value = node.reason, node.reason.value
        relative = value.distance / value.scale if value.scale else math.inf
        is_other = reason.cause in (CauseKind.ARGUMENT, CauseKind.NOT_FINITE) or relative > limit.introduced
        if is_other and value.basis not in (Basis.CHECKSUM, Basis.EXACT_CHECKSUM):
            return f"in it, {node.call.op} {node.why}"
    return ""


def raise_limits(facts: RankFacts, baseline: Baseline) -> None:
    """Raise the explained part of each difference to the difference of both golden runs."""
    if not baseline.floors:
        return
    before = len(facts.tally.failing_at)
    calls, names = facts.ops, baseline.floors
    for number, key in enumerate(calls.keys):
        golden = calls.golden_ops.get(number, key)
        if any(golden + calls.table.get_row_name(n, key).removeprefix(key) in names for n in calls.get_lines(number)):
            calls.replace_values(number, _raise_call_limits(calls[number], baseline))
    facts.tally.excuse({
        name
        for name, distance in facts.tally.failing_at.items()
        if name in baseline.floors and distance <= limits().baseline.factor * baseline.floors[name].distance
    })  # fmt: skip
    baseline.raised += before - len(facts.tally.failing_at)


def _raise_call_limits(op: ComparedCall, baseline: Baseline) -> list[ValueComparison]:
    """Return the values of a call with the differences that the baseline explains of them."""
    factor = limits().baseline.factor
    golden, is_raised = op.golden_op or op.op, False
    values = []
    for value in op.values:
        floor = baseline.floors.get(golden + value.row.removeprefix(op.op)) if value.row else None
        if floor is not None and floor.basis == value.basis and value.state != ValueState.UNJUDGED:
            explained = factor * floor.distance
            if value.state == ValueState.DIFFERS and value.distance <= explained:
                is_raised = True
                value = value._replace(state=ValueState.SAME)
            value = value._replace(explained_distance=explained)
            if math.isinf(explained):
                value = value._replace(distance=0.0)
        values.append(value)
    baseline.raised += is_raised
    return values


def describe_baseline(baseline: Mapping[str, Any]) -> str:
    """Return a sentence on a baseline: its share of the calls, and the reason where it is not used."""
    path, unused, total = baseline["path"], baseline["unused_in"], baseline["comparisons"]
    if unused == total:
        return f"the baseline {path} was not used: {baseline['unused']}"
    calls = format_count(baseline["calls"], "call")
    text = f"the baseline {path} covers {baseline['covered']:,} of the golden's {calls}"
    raised = baseline["raised"]
    calls = "1 of them" if raised == 1 else f"{raised:,} of them"
    text += f", and in {calls} explains what rounding does not" if raised else ""
    if unused:
        text += f"; it was not used in {unused} of {total} comparisons: {baseline['unused']}"
    return text


def merge_baselines(baselines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the counts of several comparisons as those of one."""
    whole: dict[str, Any] = {}
    for baseline in baselines:
        if not whole:
            whole = dict(baseline)
            continue
        counts = "comparisons", "unused_in", "calls", "covered", "raised"
        whole |= {name: whole[name] + baseline[name] for name in counts}
        whole["unused"] = whole["unused"] or baseline["unused"]
    return whole

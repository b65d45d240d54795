"""The baseline: a second golden run, whose differences from the golden are no cause (``--baseline``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from probe_core.errors import UserError, counted
from probe_core.model import Op, Row
from probe_core.model.plan import Plan
from probe_core.plugins.protocols import Opened
from probe_core.store.layout import RunPair, pair_runs
from probe_diagnosis.answer.again import ALIGN, FUZZY, Collector, plain_plan, seen
from probe_diagnosis.answer.kept import RankFacts
from probe_diagnosis.answer.same_files import is_same_file
from probe_diagnosis.difference.asking import NAME, both_asked
from probe_diagnosis.difference.facts import DIFFERS, SAME, UNJUDGED, OpFacts, apart
from probe_diagnosis.difference.reasons import Cause
from probe_diagnosis.difference.search import search
from probe_diagnosis.limits import limits


def ask(plan: Plan, values: Mapping[str, Any], asked: Set[str]) -> Plan:
    """Return the plan with ``--baseline``.

    Args:
        plan: The plan without it.
        values: The path of the second golden run.
        asked: The names of the options that the user gave.

    Raises:
        UserError: The path does not exist, or ``-da`` is asked for as well.
    """
    if NAME in plan.answers:
        raise both_asked()
    path: Path = values["run"]
    if not path.exists():
        raise UserError(f'"{path}" does not exist.', "Give the directory of a second golden run.")
    return replace(plan, baseline=path)


class Floor(NamedTuple):
    """Difference of one value between both golden runs; ``by`` names the data that it was judged by."""

    distance: float
    by: str


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

    def look(self, op: Op, rows: Sequence[Row]) -> None:
        """Take in the rows of an op of the baseline, compared with the golden."""
        values = [] if op.shifted else [(row.pair.golden, apart(row, by_tensor=op.by_tensor)) for row in rows]
        self.covered += any(value.state != UNJUDGED and not value.is_scalar for _, value in values)
        for golden, value in values:
            has_size = math.isfinite(value.distance) or value.by.endswith("checksum") or value.is_scalar
            if golden is not None and value.state != UNJUDGED and value.distance and has_size:
                self.floors[golden.name] = Floor(value.distance, value.by)

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


def measured(opened: Opened, pair: RunPair, finder: Callable[[], Collector]) -> Baseline | None:
    """Return the differences between both golden runs; None if the plan names no baseline.

    Args:
        opened: The comparison.
        pair: The step and the rank.
        finder: A function that returns a new finder.
    """
    path = opened.plan.baseline
    if path is None:
        return None
    found = Baseline(str(path), calls=len(opened.golden))
    try:
        facts = _compared(opened, pair, path, found, finder)
    except UserError as error:
        found.unused = error.what.rstrip(".")
    else:
        found.unused = _refusal(facts)
    if found.unused:
        found.floors.clear()
    return found


def _compared(
    opened: Opened, pair: RunPair, path: Path, found: Baseline, finder: Callable[[], Collector]
) -> RankFacts:
    """Compare the baseline of a rank with its golden, and return the facts.

    Names are not mapped, for both are golden runs, and calls whose counts differ are aligned.

    Raises:
        UserError: The baseline has no such rank, or cannot be compared with the golden.
    """
    record = _record_of(path, opened.plan, pair)
    matcher = None if opened.plan.matcher == FUZZY else opened.plan.matcher
    plan = replace(
        plain_plan(opened.plan), matcher=matcher, mapping=None, across=False, api_mapping=None,
        cell_mapping=None, layer_mapping=None, policies=(),
    )  # fmt: skip
    is_shifted = False

    def look(op: Op, rows: Sequence[Row]) -> None:
        nonlocal is_shifted
        is_shifted = is_shifted or op.shifted
        found.look(op, rows)

    facts = seen(opened.again(plan, record, pair.golden, pair.rank), finder(), look)
    if is_shifted:
        found.covered = 0
        found.floors.clear()
        plan = replace(plan, matcher=ALIGN)
        facts = seen(opened.again(plan, record, pair.golden, pair.rank), finder(), found.look)
    return facts


def _record_of(path: Path, plan: Plan, pair: RunPair) -> Path:
    """Return the record file of the baseline that belongs to the golden of a pair.

    Raises:
        UserError: There is none.
    """
    formats = ((pair.golden.name,),)
    for other in pair_runs(path, plan.golden, plan.steps, (), formats, plan.pair_ranks).pairs:
        if other.golden == pair.golden:
            for run, effect in (
                (pair.golden, "golden itself and explains nothing"),
                (pair.target, "target itself and would explain every difference"),
            ):
                if is_same_file(other.target, run):
                    raise UserError(f"{path} is the {effect}.", "Give a second golden run.")
            return other.target
    raise UserError(f"{path} has no record that belongs to {pair.golden}.", "Give a run of the same ranks.")


def _refusal(facts: RankFacts) -> str:
    """Return the reason why a run is no baseline of the golden; empty if it is one."""
    limit = limits().baseline
    share = facts.tally.share_of_golden
    if share < limit.shared:
        return f"only {share:.0%} of the golden's floating-point tensors could be compared with it"
    searched = search({facts.rank: facts.ops})
    for node in [*searched.first, *searched.further]:
        because, value = node.because, node.because.value
        relative = value.distance / value.scale if value.scale else math.inf
        is_other = because.cause in (Cause.ARGUMENT, Cause.NOT_FINITE) or relative > limit.introduced
        if is_other and not value.by.endswith("checksum"):
            return f"in it, {node.facts.op} {node.why}"
    return ""


def raise_limits(facts: RankFacts, baseline: Baseline) -> None:
    """Raise what is explained of each difference by what both golden runs differ by."""
    if not baseline.floors:
        return
    before = len(facts.tally.failing_at)
    facts.ops = [_raised(op, baseline) for op in facts.ops]
    facts.tally.excuse({
        name
        for name, distance in facts.tally.failing_at.items()
        if name in baseline.floors and distance <= limits().baseline.factor * baseline.floors[name].distance
    })  # fmt: skip
    baseline.raised += before - len(facts.tally.failing_at)


def _raised(op: OpFacts, baseline: Baseline) -> OpFacts:
    """Return the facts about an op with what the baseline explains of its values."""
    factor = limits().baseline.factor
    golden, is_other, is_raised = op.golden or op.op, False, False
    values = []
    for value in op.values:
        floor = baseline.floors.get(golden + value.row.removeprefix(op.op)) if value.row else None
        if floor is not None and floor.by == value.by and value.state != UNJUDGED:
            explained = factor * floor.distance
            if value.state == DIFFERS and value.distance <= explained:
                is_raised = True
                value = value._replace(state=SAME)
            is_other = True
            value = value._replace(floor=explained)
            if math.isinf(explained):
                value = value._replace(distance=0.0)
        values.append(value)
    if not is_other:
        return op
    baseline.raised += is_raised
    outputs = [value for value in values if not value.side.is_source and not value.is_scalar]
    agrees = all(one.state == SAME for one in outputs) and any(one.noise > 0 for one in outputs)
    return replace(op, values=tuple(values), agrees=agrees)


def sentence(baseline: Mapping[str, Any]) -> str:
    """Return a sentence on a baseline: its share of the calls, and the reason where it is not used."""
    path, unused, total = baseline["path"], baseline["unused_in"], baseline["comparisons"]
    if unused == total:
        return f"the baseline {path} was not used: {baseline['unused']}"
    calls = counted(baseline["calls"], "call")
    text = f"the baseline {path} covers {baseline['covered']:,} of the golden's {calls}"
    raised = baseline["raised"]
    calls = "1 of them" if raised == 1 else f"{raised:,} of them"
    text += f", and in {calls} explains what rounding does not" if raised else ""
    if unused:
        text += f"; it was not used in {unused} of {total} comparisons: {baseline['unused']}"
    return text


def together(baselines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is known of the baselines of several comparisons as that of one."""
    whole: dict[str, Any] = {}
    for one in baselines:
        if not whole:
            whole = dict(one)
            continue
        counts = "comparisons", "unused_in", "calls", "covered", "raised"
        whole |= {name: whole[name] + one[name] for name in counts}
        whole["unused"] = whole["unused"] or one["unused"]
    return whole

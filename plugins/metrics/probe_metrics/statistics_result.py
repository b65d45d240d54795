"""Result of the table of statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator

from probe_core.model import Kind, Level, Measurements, Reason, Statistic, Value, Verdict
from probe_core.model.measure import OpenPair
from probe_core.model.messages import NOT_AVAILABLE
from probe_metrics.exact import DIFFER, IN_LAST_DIGITS, ExactStatistics, is_exact, scalars_against
from probe_metrics.statistics import as_float, is_number
from probe_metrics.thresholds import thresholds

NAMES = ("max", "min", "mean", "norm")


class StatisticsResult:
    """Warning where a recorded statistic is off by more than half, else an empty cell.

    The relative error is the seed's |N-B|/|B|; where B is 0, |N-B| over the larger magnitude
    (conflict C1). nan or inf on one side and not the same on the other counts as off, and so do
    texts and truth values that differ; null on one side does not (decision D8). No partner or
    other shapes: N/A (decision D7).

    The level looks at the scale as well (decision D24): a mean that is off by 300 % of nearly
    nothing is a Warning in the table and no suspect. And integers that differ at all are an error
    (see ``ExactStatistics``), whatever the label. Tensors of which no statistic is on record on both
    sides were not compared.
    """

    def __init__(self) -> None:
        limits = thresholds("statistics")
        self._relative: float = limits["relative"]
        self._tiny: float = limits["tiny"]
        self._share: float = limits["share_of_magnitude"]
        self._exact = ExactStatistics()

    def judge(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """The verdict on one pair."""
        if not pair.pair.matched:
            return Verdict(Level.WARNING, NOT_AVAILABLE, measured=False)
        if pair.obstacle is not None:
            return Verdict(Level.ERROR, NOT_AVAILABLE, (Reason("evidence", "the shapes differ"),))
        target, golden = (slot.value for slot in pair.slots)
        if target.kind is Kind.TENSOR and not any(
            ours is not None and theirs is not None
            for ours, theirs in zip(target.statistics, golden.statistics)
        ):
            return _not_on_record(target, golden)
        if is_exact(target) and is_exact(golden):
            return self._judge_exact(target, golden)
        off = [] if target.statistics == golden.statistics else list(self._off(target, golden))
        scalar = pair.pair.scalars_differ
        if not off and not scalar:
            return Verdict(Level.PASS, "")
        grave = [text for text, counts in off if counts]
        level = Level.ERROR if grave or scalar else Level.PASS
        told = grave[:1]
        if scalar:
            told = [scalars_against(target, golden)]
        evidence = [Reason("evidence", text) for text in told]
        if not off:
            return Verdict(level, "", tuple(evidence), failed=True)
        reasons = [Reason("double_check"), *evidence]
        return Verdict(level, "Warning", tuple(reasons), failed=True)

    def _judge_exact(self, target: Value, golden: Value) -> Verdict:
        off = [] if target.statistics == golden.statistics else list(self._off(target, golden))
        differences = list(self._exact.differences(target, golden))
        grave = [text for text, counts in differences if counts]
        level = Level.ERROR if grave else Level.WARNING if differences else Level.PASS
        reasons = [Reason("double_check")] if off else []
        if grave:
            reasons += [DIFFER, Reason("evidence", f"{grave[0]}, where nothing is rounded")]
        elif differences:
            reasons.append(IN_LAST_DIGITS)
        return Verdict(level, "Warning" if off else "", tuple(reasons), failed=bool(off or grave))

    def _off(self, target: Value, golden: Value) -> Iterator[tuple[str, bool]]:
        """The statistics that are off: what to say of each, and whether its difference counts."""
        for name, ours, theirs in zip(NAMES, target.statistics, golden.statistics):
            if ours != theirs and self._error(ours, theirs) > self._relative:
                counts = not is_number(ours) or not (
                    abs(as_float(ours) - as_float(theirs)) <= self._share * _magnitude(golden)
                )
                yield f"{name} {ours!r:.24} against {theirs!r:.24}", counts

    def _error(self, target: Statistic, golden: Statistic) -> float:
        if target is None or golden is None:
            return 0.0
        if type(target) is float and type(golden) is float and golden:  # as nearly all are
            share = abs((target - golden) / golden)
            if share - share == 0:
                return share
        if not is_number(target) and not is_number(golden):
            return math.inf if target != golden else 0.0
        if not is_number(target) or not is_number(golden):
            return 0.0
        ours, theirs = as_float(target), as_float(golden)
        if ours == theirs or (math.isnan(ours) and math.isnan(theirs)):
            return 0.0
        if not (math.isfinite(ours) and math.isfinite(theirs)):
            return math.inf
        if theirs == 0:
            return abs(ours) / (abs(ours) + self._tiny)
        return abs((ours - theirs) / theirs)


def _not_on_record(target: Value, golden: Value) -> Verdict:
    lacking = [all(one is None for one in value.statistics) for value in (target, golden)]
    return Verdict(Level.SKIP if all(lacking) else Level.WARNING, "", measured=False)


def _magnitude(value: Value) -> float:
    ends = (value.statistics.max, value.statistics.min)
    sizes = [abs(as_float(end)) for end in ends if is_number(end)]
    return max((size for size in sizes if math.isfinite(size)), default=0.0)

"""Policy behind the column Result of the statistics table."""

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
    """Label ``Warning`` if a recorded statistic is off by more than half, else an empty cell.

    Formula, for each of max, min, mean and norm: ``|N - B| / |B|``, a ratio; N is the target's, B the
    golden's. The label is ``N/A`` for rows without partner and for shapes that differ.

    Edge cases:
        * B is 0 (or -0.0): ``|N| / (|N| + 1e-10)``, so that any number but a tiny one counts as off.
        * nan or inf on one side, and not the same on the other: counts as off. The same on both sides: does
          not.
        * Texts or booleans that differ: count as off.
        * null on one side, as of tensors without elements: does not count.
        * 0-d tensors are judged like any other.

    The level, which decides on suspects, differs from the label. A statistic that is off by a small share
    of the tensor's largest magnitude is no suspect: means near zero differ by 300 % from rounding alone.
    Integers and booleans that differ at all are an error (see ``ExactStatistics``). A tensor with no
    statistic on record on both sides counts as not compared.

    Source: docs/tables.md#statistics-result, by the comparison guide of msprobe 8.3; the level is probe's
    own.
    """

    def __init__(self) -> None:
        limits = thresholds("statistics")
        self._relative: float = limits["relative"]
        self._tiny: float = limits["tiny"]
        self._share: float = limits["share_of_magnitude"]
        self._exact = ExactStatistics()

    def limits(self) -> dict[str, str]:
        """Return the limits of the relative errors, by column."""
        limit = f"Warning above {self._relative:.0%}"
        return {f"{name}RelativeErr": limit for name in ("Max", "Min", "Mean", "Norm")}

    def judge(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """Return the verdict on one pair."""
        if not pair.pair.matched:
            return Verdict(Level.WARNING, NOT_AVAILABLE, measured=False)
        if pair.obstacle is not None:
            return Verdict(Level.ERROR, NOT_AVAILABLE, (Reason("evidence", "the shapes differ"),))
        target, golden = (slot.value for slot in pair.slots)
        if self._is_near(target, golden):
            return Verdict(Level.PASS, "")
        if target.kind is Kind.TENSOR and not any(
            number is not None and reference is not None
            for number, reference in zip(target.statistics, golden.statistics)
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
        texts = grave[:1]
        if scalar:
            texts = [scalars_against(target, golden)]
        evidence = [Reason("evidence", text) for text in texts]
        if not off:
            return Verdict(level, "", tuple(evidence), failed=True)
        reasons = [Reason("double_check"), *evidence]
        return Verdict(level, "Warning", tuple(reasons), failed=True)

    def _is_near(self, target: Value, golden: Value) -> bool:
        """Return True for tensors whose statistics are floats that hardly differ, as nearly all are."""
        if target.kind is not Kind.TENSOR or golden.kind is not Kind.TENSOR or is_exact(target):
            return False
        if target.statistics.max is None:
            return False
        for number, reference in zip(target.statistics, golden.statistics):
            if number is reference is None:  # as the norm in dumps of older tools
                continue
            if not (type(number) is type(reference) is float and reference):
                return False
            if not abs((number - reference) / reference) <= self._relative:
                return False
        return True

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
        """Yield the statistics that are off: the evidence as a text, and True if the level counts it."""
        for name, number, reference in zip(NAMES, target.statistics, golden.statistics):
            if number != reference and self._error(number, reference) > self._relative:
                counts = not is_number(number) or not (
                    abs(as_float(number) - as_float(reference)) <= self._share * _magnitude(golden)
                )
                yield f"{name} {number!r:.24} against {reference!r:.24}", counts

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
        number, reference = as_float(target), as_float(golden)
        if number == reference or (math.isnan(number) and math.isnan(reference)):
            return 0.0
        if not (math.isfinite(number) and math.isfinite(reference)):
            return math.inf
        if reference == 0:
            return abs(number) / (abs(number) + self._tiny)
        return abs((number - reference) / reference)


def _not_on_record(target: Value, golden: Value) -> Verdict:
    lacking = [all(statistic is None for statistic in value.statistics) for value in (target, golden)]
    return Verdict(Level.SKIP if all(lacking) else Level.WARNING, "", measured=False)


def _magnitude(value: Value) -> float:
    ends = (value.statistics.max, value.statistics.min)
    sizes = [abs(as_float(end)) for end in ends if is_number(end)]
    return max((size for size in sizes if math.isfinite(size)), default=0.0)

"""Policy of the column Result in the statistics table."""

from __future__ import annotations

import math

import numpy as np
from probe_reporters.messages import NOT_AVAILABLE

from probe_core.model import Level, Reason, Value, Verdict
from probe_core.model.batches import RowBatch
from probe_core.model.columns import NONE, TENSOR, Array
from probe_core.model.results import VerdictColumn
from probe_metrics.adapters import BatchPolicy
from probe_metrics.exact import EXACT_REASON, LAST_DIGITS_REASON, ExactStatistics, format_scalars, is_exact_dtype
from probe_metrics.statistics import are_number
from probe_metrics.thresholds import load_thresholds

STATISTIC_NAMES = ("max", "min", "mean", "norm")


class StatisticsResult(BatchPolicy):
    """Policy that labels a row ``Warning`` if the relative error of a recorded statistic exceeds 0.5.

    Formula, for each of max, min, mean and norm: ``|N - B| / |B|``, where N is the statistic of the target and B
    the statistic of the golden. The label is ``N/A`` for unpaired rows and for rows whose shapes differ. All other
    rows have an empty label.

    Edge cases:
        * B is 0 (or -0.0): ``|N| / (|N| + 1e-10)``, so that any N that is not tiny exceeds the limit.
        * nan or inf on one side and a different value on the other: exceeds the limit. The same value on both
          sides: does not.
        * Texts or booleans that differ: exceed the limit.
        * null on one side, as for tensors without elements: is ignored.
        * 0-d tensors are judged like other tensors.

    The level, by which suspects are selected, may differ from the label. A difference that is small relative to the
    tensor's largest magnitude does not raise the level, because rounding alone can change a mean near zero by 300 %.
    For integers and booleans, each difference that rounding cannot explain is an error (see ``ExactStatistics``). A
    tensor counts as not compared if there is no statistic that both sides recorded.

    Source: docs/tables.md#statistics-result, from the comparison guide of msprobe 8.3. The level is a rule of probe.
    """

    def __init__(self) -> None:
        limits = load_thresholds("statistics")
        self._max_relative_error: float = limits["relative"]
        self._magnitude_offset: float = limits["tiny"]
        self._min_share_of_magnitude: float = limits["share_of_magnitude"]
        self._exact = ExactStatistics()

    def limits(self) -> dict[str, str]:
        """Return the limits of the relative errors, by column."""
        limit = f"Warning above {self._max_relative_error:.0%}"
        return {f"{name}RelativeErr": limit for name in ("Max", "Min", "Mean", "Norm")}

    def judge_batch(self, batch: RowBatch) -> VerdictColumn:
        """Return the verdict on each row."""
        verdicts = VerdictColumn(
            [PASS_VERDICT, UNPAIRED_VERDICT, OTHER_SHAPE_VERDICT], np.where(batch.obstacles == 0, 0, 2)
        )
        verdicts.codes[~batch.is_matched] = 1
        is_judged = batch.obstacles == 0
        types, ref_types = (side.column("types") for side in (batch.target, batch.golden))
        is_tensor = is_judged & (batch.target.column("kind") == TENSOR)
        is_recorded = ((types != NONE) & (ref_types != NONE)).any(axis=1)
        for line in np.flatnonzero(is_tensor & ~is_recorded).tolist():
            is_unrecorded = (types[line] == NONE).all() and (ref_types[line] == NONE).all()
            verdicts[line] = Verdict(Level.SKIP if is_unrecorded else Level.WARNING, "", measured=False)
        differs = ~batch.equal_statistics
        exceeds_limit = differs & (self._compute_relative_errors(batch) > self._max_relative_error)
        is_exact = is_tensor & is_exact_dtype(batch.target) & is_exact_dtype(batch.golden)
        needs_verdict = exceeds_limit.any(axis=1) | batch.scalars_differ | (is_exact & differs.any(axis=1))
        needs_verdict &= is_judged & (is_recorded | ~is_tensor)
        is_significant = exceeds_limit & self._find_significant(batch)
        for line in np.flatnonzero(needs_verdict).tolist():
            target, golden = (slot.value for slot in batch.pair(line)[:2] if slot is not None)
            is_warning = bool(exceeds_limit[line].any())
            if is_exact[line]:
                verdicts[line] = self._judge_exact(target, golden, is_warning=is_warning)
                continue
            if batch.scalars_differ[line]:
                texts = [format_scalars(target, golden)]
            else:
                texts = [_format_statistic(target, golden, index) for index in np.flatnonzero(is_significant[line])[:1]]
            verdicts[line] = _create_verdict(texts, is_warning=is_warning)
        return verdicts

    def _judge_exact(self, target: Value, golden: Value, *, is_warning: bool) -> Verdict:
        differences = list(self._exact.iterate_differences(target, golden))
        faults = [text for text, is_fault in differences if is_fault]
        level = Level.ERROR if faults else Level.WARNING if differences else Level.PASS
        reasons = [Reason("double_check")] if is_warning else []
        if faults:
            reasons += [EXACT_REASON, Reason("evidence", f"{faults[0]}, which rounding cannot explain")]
        elif differences:
            reasons.append(LAST_DIGITS_REASON)
        label = "Warning" if is_warning else ""
        return Verdict(level, label, tuple(reasons), failed=bool(is_warning or faults))

    def _compute_relative_errors(self, batch: RowBatch) -> Array:
        """Return the relative errors of the statistics.

        They are inf for numbers that are not finite, and for statistics of which neither side is a number. They are 0
        if one side is a number and the other is not.
        """
        sides = batch.target, batch.golden
        numbers, references = (side.column("numbers") for side in sides)
        types, ref_types = (side.column("types") for side in sides)
        are_numbers, are_references = map(are_number, sides)
        with np.errstate(all="ignore"):
            errors = abs((numbers - references) / references)
            errors_near_zero = abs(numbers) / (abs(numbers) + self._magnitude_offset)
        errors = np.where(references == 0, errors_near_zero, errors)
        errors[~(np.isfinite(numbers) & np.isfinite(references))] = math.inf
        errors[(numbers == references) | (np.isnan(numbers) & np.isnan(references))] = 0.0
        are_not_numbers = ~are_numbers & ~are_references & (types != NONE) & (ref_types != NONE)
        return np.select([are_numbers & are_references, are_not_numbers], [errors, math.inf], 0.0)

    def _find_significant(self, batch: RowBatch) -> Array:
        """Return True for differences that are not small relative to the tensor's largest magnitude."""
        sides = batch.target, batch.golden
        numbers, references = (side.column("numbers") for side in sides)
        extreme_magnitudes = np.where(are_number(batch.golden)[:, :2], abs(references[:, :2]), 0.0)
        magnitude = np.where(np.isfinite(extreme_magnitudes), extreme_magnitudes, 0.0).max(axis=1)
        with np.errstate(all="ignore"):
            is_small = abs(numbers - references) <= self._min_share_of_magnitude * magnitude[:, None]
        is_significant: Array = ~(are_number(batch.target) & is_small)
        return is_significant


PASS_VERDICT = Verdict(Level.PASS, "")
UNPAIRED_VERDICT = Verdict(Level.WARNING, NOT_AVAILABLE, measured=False)
OTHER_SHAPE_VERDICT = Verdict(Level.ERROR, NOT_AVAILABLE, (Reason("evidence", "the shapes differ"),))


def _create_verdict(evidence_texts: list[str], *, is_warning: bool) -> Verdict:
    """Return the verdict on a row whose values differ."""
    evidence = [Reason("evidence", text) for text in evidence_texts]
    reasons = [Reason("double_check"), *evidence] if is_warning else evidence
    level = Level.ERROR if evidence_texts else Level.PASS
    return Verdict(level, "Warning" if is_warning else "", tuple(reasons), failed=True)


def _format_statistic(target: Value, golden: Value, index: int) -> str:
    """Return the name of a statistic with its values in the target and the golden."""
    return f"{STATISTIC_NAMES[index]} {target.statistics[index]!r:.24} against {golden.statistics[index]!r:.24}"

"""Policy of the column Result in the statistics table."""

from __future__ import annotations

import math

import numpy as np
from probe_reporters.api import NOT_AVAILABLE

from probe_core.model import Level, Reason, Value, Verdict
from probe_core.model.batches import RowBatch
from probe_core.model.columns import BIG_INTEGER, BOOLEAN, NONE, TENSOR, TEXT, Array
from probe_core.model.results import VerdictColumn
from probe_metrics.adapters import BatchPolicyBase
from probe_metrics.exact import EXACT_REASON, LAST_DIGITS_REASON, ExactStatistics, format_scalars, is_exact_dtype
from probe_metrics.statistics import are_number
from probe_metrics.thresholds import load_thresholds

STATISTIC_NAMES = ("max", "min", "mean", "norm")
PASS_VERDICT = Verdict(Level.PASS, "")
UNPAIRED_VERDICT = Verdict(Level.WARNING, NOT_AVAILABLE, measured=False)
OTHER_SHAPE_VERDICT = Verdict(Level.ERROR, NOT_AVAILABLE, (Reason("evidence", "the shapes differ"),))


_HAS_NUMBER = np.array([kind not in (NONE, TEXT) for kind in range(BIG_INTEGER + 1)])
"""True for the types of statistics that are numbers or booleans."""


class StatisticsResult(BatchPolicyBase):
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

    Suspects are selected by the level, which may differ from the label. A difference that is small relative to the
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
        is_open = batch.obstacles == 0
        verdicts = VerdictColumn([PASS_VERDICT, UNPAIRED_VERDICT, OTHER_SHAPE_VERDICT], np.where(is_open, 0, 2))
        verdicts.codes[~batch.is_matched] = 1
        target_types, golden_types = (side.column("types") for side in (batch.target, batch.golden))
        is_tensor = is_open & (batch.target.column("kind") == TENSOR)
        is_recorded = ((target_types != NONE) & (golden_types != NONE)).any(axis=1)
        for line in np.flatnonzero(is_tensor & ~is_recorded).tolist():
            is_unrecorded = (target_types[line] == NONE).all() and (golden_types[line] == NONE).all()
            verdicts[line] = Verdict(Level.SKIP if is_unrecorded else Level.WARNING, "", measured=False)
        is_exact = is_tensor & is_exact_dtype(batch.target) & is_exact_dtype(batch.golden)
        differs = ~batch.equal_statistics
        exceeds_limit = differs & (self._compute_relative_errors(batch) > self._max_relative_error)
        is_significant = exceeds_limit & self._find_significant(batch)
        needs_verdict = exceeds_limit.any(axis=1) | batch.scalars_differ | (is_exact & differs.any(axis=1))
        needs_verdict &= is_open & (is_recorded | ~is_tensor)
        for line in np.flatnonzero(needs_verdict).tolist():
            is_warning = bool(exceeds_limit[line].any())
            if is_exact[line]:
                verdicts[line] = self._judge_exact(*_get_values(batch, line), is_warning=is_warning)
            else:
                texts = _list_evidence(batch, line, np.flatnonzero(is_significant[line]))
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

        * Two finite numbers have the relative error of the class; equal numbers, and two nan, have 0.
        * Other pairs with a number that is not finite have inf.
        * A boolean against a number is the number 0 or 1.
        * All other pairs have inf, because there is no error to measure; the caller ignores equal texts.
        * Null on one side is ignored: the error is 0.
        """
        sides = batch.target, batch.golden
        numbers, golden_numbers = (side.column("numbers") for side in sides)
        types, golden_types = (side.column("types") for side in sides)
        is_measurable = (
            _HAS_NUMBER[types] & _HAS_NUMBER[golden_types] & ~((types == BOOLEAN) & (golden_types == BOOLEAN))
        )
        with np.errstate(all="ignore"):
            errors = abs((numbers - golden_numbers) / golden_numbers)
            errors_near_zero = abs(numbers) / (abs(numbers) + self._magnitude_offset)
        errors = np.where(golden_numbers == 0, errors_near_zero, errors)
        errors[~(np.isfinite(numbers) & np.isfinite(golden_numbers))] = math.inf
        errors[(numbers == golden_numbers) | (np.isnan(numbers) & np.isnan(golden_numbers))] = 0.0
        is_recorded = (types != NONE) & (golden_types != NONE)
        return np.select([is_measurable, is_recorded], [errors, math.inf], 0.0)

    def _find_significant(self, batch: RowBatch) -> Array:
        """Return True for differences that are not small relative to the tensor's largest magnitude."""
        sides = batch.target, batch.golden
        numbers, golden_numbers = (side.column("numbers") for side in sides)
        extreme_magnitudes = np.where(are_number(batch.golden)[:, :2], abs(golden_numbers[:, :2]), 0.0)
        magnitude = np.where(np.isfinite(extreme_magnitudes), extreme_magnitudes, 0.0).max(axis=1)
        with np.errstate(all="ignore"):
            is_small = abs(numbers - golden_numbers) <= self._min_share_of_magnitude * magnitude[:, None]
        is_significant: Array = ~(are_number(batch.target) & is_small)
        return is_significant


def _get_values(batch: RowBatch, line: int) -> tuple[Value, Value]:
    target, golden = (slot.value for slot in batch.pair(line)[:2] if slot is not None)
    return target, golden


def _list_evidence(batch: RowBatch, line: int, significant_indices: Array) -> list[str]:
    """Return the scalars that differ, or the first statistic that differs significantly."""
    target, golden = _get_values(batch, line)
    if batch.scalars_differ[line]:
        return [format_scalars(target, golden)]
    return [_format_statistic(target, golden, index) for index in significant_indices[:1]]


def _create_verdict(evidence_texts: list[str], *, is_warning: bool) -> Verdict:
    """Return the verdict on a row whose values differ."""
    evidence = [Reason("evidence", text) for text in evidence_texts]
    reasons = [Reason("double_check"), *evidence] if is_warning else evidence
    level = Level.ERROR if evidence_texts else Level.PASS
    return Verdict(level, "Warning" if is_warning else "", tuple(reasons), failed=True)


def _format_statistic(target: Value, golden: Value, index: int) -> str:
    """Return the name of a statistic with its values in the target and the golden."""
    return f"{STATISTIC_NAMES[index]} {target.statistics[index]!r:.24} against {golden.statistics[index]!r:.24}"

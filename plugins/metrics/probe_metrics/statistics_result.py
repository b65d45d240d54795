"""Policy behind the column Result of the statistics table."""

from __future__ import annotations

import math

import numpy as np

from probe_core.model import Level, Reason, Value, Verdict
from probe_core.model.batches import RowBatch
from probe_core.model.columns import NONE, TENSOR, Array
from probe_core.model.messages import NOT_AVAILABLE
from probe_core.model.results import VerdictColumn
from probe_metrics.adapters import BatchPolicy
from probe_metrics.exact import EXACT_REASON, LAST_DIGITS_REASON, ExactStatistics, format_scalars, is_exact_dtype
from probe_metrics.statistics import are_number
from probe_metrics.thresholds import load_thresholds

STATISTIC_NAMES = ("max", "min", "mean", "norm")


class StatisticsResult(BatchPolicy):
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
        limits = load_thresholds("statistics")
        self._relative: float = limits["relative"]
        self._tiny: float = limits["tiny"]
        self._share: float = limits["share_of_magnitude"]
        self._exact = ExactStatistics()

    def limits(self) -> dict[str, str]:
        """Return the limits of the relative errors, by column."""
        limit = f"Warning above {self._relative:.0%}"
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
            lacking = (types[line] == NONE).all() and (ref_types[line] == NONE).all()
            verdicts[line] = Verdict(Level.SKIP if lacking else Level.WARNING, "", measured=False)
        differs = ~batch.equal_statistics
        is_off = differs & (self._errors(batch) > self._relative)
        are_exact = is_tensor & is_exact_dtype(batch.target) & is_exact_dtype(batch.golden)
        wanted = is_off.any(axis=1) | batch.scalars_differ | (are_exact & differs.any(axis=1))
        wanted &= is_judged & (is_recorded | ~is_tensor)
        counts = is_off & self._count(batch)
        for line in np.flatnonzero(wanted).tolist():
            target, golden = (slot.value for slot in batch.pair(line)[:2] if slot is not None)
            is_warning = bool(is_off[line].any())
            if are_exact[line]:
                verdicts[line] = self._judge_exact(target, golden, is_warning)
                continue
            if batch.scalars_differ[line]:
                texts = [format_scalars(target, golden)]
            else:
                texts = [_format_statistic(target, golden, place) for place in np.flatnonzero(counts[line])[:1]]
            evidence = [Reason("evidence", text) for text in texts]
            level, label = Level.ERROR if texts else Level.PASS, "Warning" if is_warning else ""
            reasons = [Reason("double_check"), *evidence] if is_warning else evidence
            verdicts[line] = Verdict(level, label, tuple(reasons), failed=True)
        return verdicts

    def _judge_exact(self, target: Value, golden: Value, is_warning: bool) -> Verdict:
        differences = list(self._exact.iterate_differences(target, golden))
        grave = [text for text, counts in differences if counts]
        level = Level.ERROR if grave else Level.WARNING if differences else Level.PASS
        reasons = [Reason("double_check")] if is_warning else []
        if grave:
            reasons += [EXACT_REASON, Reason("evidence", f"{grave[0]}, where nothing is rounded")]
        elif differences:
            reasons.append(LAST_DIGITS_REASON)
        label = "Warning" if is_warning else ""
        return Verdict(level, label, tuple(reasons), failed=bool(is_warning or grave))

    def _errors(self, batch: RowBatch) -> Array:
        """Return the relative errors; inf for statistics that differ in kind or are not finite."""
        sides = batch.target, batch.golden
        numbers, references = (side.column("numbers") for side in sides)
        types, ref_types = (side.column("types") for side in sides)
        are_numbers, are_references = map(are_number, sides)
        with np.errstate(all="ignore"):
            errors = abs((numbers - references) / references)
            beside_zero = abs(numbers) / (abs(numbers) + self._tiny)
        errors = np.where(references == 0, beside_zero, errors)
        errors[~(np.isfinite(numbers) & np.isfinite(references))] = math.inf
        errors[(numbers == references) | (np.isnan(numbers) & np.isnan(references))] = 0.0
        others = ~are_numbers & ~are_references & (types != NONE) & (ref_types != NONE)
        return np.select([are_numbers & are_references, others], [errors, math.inf], 0.0)

    def _count(self, batch: RowBatch) -> Array:
        """Return False for errors that are small beside the tensor's largest magnitude."""
        sides = batch.target, batch.golden
        numbers, references = (side.column("numbers") for side in sides)
        ends = np.where(are_number(batch.golden)[:, :2], abs(references[:, :2]), 0.0)
        magnitude = np.where(np.isfinite(ends), ends, 0.0).max(axis=1)
        with np.errstate(all="ignore"):
            is_small = abs(numbers - references) <= self._share * magnitude[:, None]
        counts: Array = ~(are_number(batch.target) & is_small)
        return counts


PASS_VERDICT = Verdict(Level.PASS, "")
UNPAIRED_VERDICT = Verdict(Level.WARNING, NOT_AVAILABLE, measured=False)
OTHER_SHAPE_VERDICT = Verdict(Level.ERROR, NOT_AVAILABLE, (Reason("evidence", "the shapes differ"),))


def _format_statistic(target: Value, golden: Value, place: int) -> str:
    """Return the text on a statistic that is off."""
    return f"{STATISTIC_NAMES[place]} {target.statistics[place]!r:.24} against {golden.statistics[place]!r:.24}"

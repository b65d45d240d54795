"""A judge for gradients that are nothing but rounding, because a sum of large numbers cancelled.

The gradient of a bias in front of a normalization is an example: it is zero in theory, and each run computes
it as a sum of large numbers that rounds differently. Its cosine is random, however right both runs are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, prod, sqrt

from probe_core.model import SEVERITIES, Level, MatchKind, Op, Reason, Row, Ruling, Side, Slot
from probe_core.model.batches import RowBatch
from probe_core.store.names import is_backward, is_gradient
from probe_diagnosis.judges.batch_judge import judge_each

CANCELLED_REASON = Reason("evidence", "differs by no more than rounding of the largest tensor of its call")


class RoundingJudge:
    """Judge that passes gradients that are rounding, independent of the label in the table.

    Only rows that fail by their cosine alone are considered; the policy gives them a ``drift``. Such a row is
    rounding if it is an output or gradient of a backward op, has fewer elements than another tensor of the
    op, and differs by no more than rounding explains of the largest scale among these. In regions where calls
    do not line up, tensors without a partner count as well.
    """

    def judge_batch(self, batch: RowBatch) -> Mapping[int, Ruling]:
        """Return the rulings of all ops with a row that fails by its cosine alone."""
        verdicts = batch.verdicts
        doubtful = batch.find_ops(verdicts.has_drift & (verdicts.levels == SEVERITIES[Level.ERROR]))
        return judge_each(self.judge, batch, doubtful)

    def judge(self, op: Op, rows: Sequence[Row]) -> Mapping[int, Ruling]:
        """Return a ruling for each row that fails by its cosine alone.

        Rows that are rounding pass; the others keep their level, and lose their drift.
        """
        drifts = [row.verdict.drift for row in rows]
        doubtful = [n for n, row in enumerate(rows) if drifts[n] and row.verdict.level is Level.ERROR]
        sizes = [_count_elements(row) for row in rows]
        is_of_backward_pass = is_gradient(op.key) or is_backward(op.key)
        rulings: dict[int, Ruling] = {}
        for place in doubtful:
            row, drift, size = rows[place], drifts[place], sizes[place]
            assert drift is not None
            scale = max(
                (_compute_scale(candidate) for candidate, count in zip(rows, sizes) if count > size), default=0.0
            )
            verdict = row.verdict._replace(drift=None)
            is_output = row.pair.side in (Side.OUTPUT, Side.PARAMETERS_GRAD)
            if is_of_backward_pass and is_output and drift.relative_to(scale) <= drift.noise:
                verdict = verdict._replace(level=Level.PASS, failed=False)
            rulings[place] = Ruling(verdict, CANCELLED_REASON)
        return rulings


def _compute_scale(row: Row) -> float:
    """Return the root mean square of the golden, or of a target without partner by its recorded norm."""
    if row.verdict.drift is not None:
        return row.verdict.drift.scale
    slot = row.pair.target
    if slot is None or row.pair.matched or row.pair.match_kind is not MatchKind.REGION:
        return 0.0
    norm, size = slot.value.statistics.norm, _count_elements(row)
    return norm / sqrt(size) if isinstance(norm, float) and isfinite(norm) and size else 0.0


def _count_elements(row: Row) -> int:
    """Return the number of elements of a row's tensor; 1 for a scalar."""
    slot: Slot | None = row.pair.target or row.pair.golden
    assert slot is not None
    return prod(slot.value.shape or ())

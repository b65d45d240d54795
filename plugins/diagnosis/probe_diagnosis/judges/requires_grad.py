"""A judge for values that agree while only one of both runs requires a gradient for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from probe_core.model import SEVERITIES, Level, Reason, Ruling
from probe_core.model.batches import RowBatch
from probe_diagnosis.judges.batch_judge import BatchJudge

REQUIRES_GRAD = Reason("requires_grad")


class RequiresGradJudge(BatchJudge):
    """Judge that turns a pass into a warning if ``requires_grad`` differs between both sides."""

    def judge_batch(self, batch: RowBatch) -> Mapping[int, Ruling]:
        """Return a ruling with a warning for each row that passes although ``requires_grad`` differs."""
        lines = np.flatnonzero(batch.requires_grad_differs & (batch.verdicts.levels == SEVERITIES[Level.PASS]))
        return {
            line: Ruling(batch.verdicts[line]._replace(level=Level.WARNING), REQUIRES_GRAD) for line in lines.tolist()
        }

"""A judge for rows without a partner where two aligned runs do not line up (docs/pairing.md#alignment)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from probe_core.model import Level, MatchKind, Reason, Ruling
from probe_core.model.batches import MATCH_KINDS, RowBatch
from probe_diagnosis.judges.batch_judge import BatchJudge

REGION = Reason("region")


class RegionJudge(BatchJudge):
    """Judge that skips rows without a partner in a region, because the region is reported as a whole."""

    def judge_batch(self, batch: RowBatch) -> Mapping[int, Ruling]:
        """Return a ruling that skips the row, for each row without a partner in a region."""
        lines = np.flatnonzero((batch.match_codes == MATCH_KINDS.index(MatchKind.REGION)) & ~batch.is_matched)
        return {line: Ruling(batch.verdicts[line]._replace(level=Level.SKIP), REGION) for line in lines.tolist()}

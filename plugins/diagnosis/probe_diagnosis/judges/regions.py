"""A judge for rows without a partner where two aligned runs do not line up (docs/pairing.md#alignment)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from probe_core.model import How, Level, Op, Reason, Row, Ruling

REGION = Reason("region")


class Regions:
    """Judge that skips rows without a partner in a region, because the region is reported as a whole."""

    def judge(self, op: Op, rows: Sequence[Row]) -> Mapping[int, Ruling]:
        """Return a ruling that skips the row, for each row without a partner in a region."""
        return {
            place: Ruling(row.verdict._replace(level=Level.SKIP), REGION)
            for place, row in enumerate(rows)
            if row.pair.how is How.REGION and not row.pair.matched
        }

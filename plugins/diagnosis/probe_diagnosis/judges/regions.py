"""Rows without a partner where two runs do not line up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from probe_core.model import How, Level, Op, Reason, Row, Ruling

REGION = Reason("region")


class Regions:
    """Skips rows without a partner in a region: the region is one finding, not one a row."""

    def judge(self, op: Op, rows: Sequence[Row]) -> Mapping[int, Ruling]:
        """The rows that are part of a region's finding."""
        return {
            place: Ruling(row.verdict._replace(level=Level.SKIP), REGION)
            for place, row in enumerate(rows)
            if row.pair.how is How.REGION and not row.pair.matched
        }

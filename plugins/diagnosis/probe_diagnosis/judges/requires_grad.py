"""Values that agree while only one side requires a gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from probe_core.model import Level, Op, Reason, Row, Ruling

REQUIRES_GRAD = Reason("requires_grad")


class RequiresGrad:
    """Makes a warning of a row that passes although ``requires_grad`` differs."""

    def judge(self, op: Op, rows: Sequence[Row]) -> Mapping[int, Ruling]:
        """The rows to look at."""
        return {
            place: Ruling(row.verdict._replace(level=Level.WARNING), REQUIRES_GRAD)
            for place, row in enumerate(rows)
            if row.verdict.level is Level.PASS and row.pair.requires_grad_differs
        }

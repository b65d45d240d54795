"""A judge for values that agree while only one of both runs requires a gradient for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from probe_core.model import Level, Op, Reason, Row, Ruling

REQUIRES_GRAD = Reason("requires_grad")


class RequiresGrad:
    """Judge that turns a pass into a warning if ``requires_grad`` differs between both sides."""

    def judge(self, op: Op, rows: Sequence[Row]) -> Mapping[int, Ruling]:
        """Return a ruling with a warning for each row that passes although ``requires_grad`` differs."""
        return {
            place: Ruling(row.verdict._replace(level=Level.WARNING), REQUIRES_GRAD)
            for place, row in enumerate(rows)
            if row.verdict.level is Level.PASS and row.pair.requires_grad_differs
        }

"""The data types of probe, each imported on first use. None knows a framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_core.model.answers import *  # noqa: F403
    from probe_core.model.rows import *  # noqa: F403
    from probe_core.model.values import *  # noqa: F403

__getattr__ = create_exporter(
    __name__,
    {
        "answers": "Answer Coverage Finding Note NoteKind Outcome",
        "rows": "Advice Cell Colour Column Drift Level Mark MatchKind Measurement Measurements MetricFailure "
        "Op Pair Percent Quantity Reason ReplacedVerdict Row RowCounts Ruling SEVERITIES Suspect Verdict",
        "values": "Kind Mode Record Side Slot Statistic Statistics Transfer Value",
    },
    renamed={"GRAVITY": "SEVERITIES", "How": "MatchKind"},
)

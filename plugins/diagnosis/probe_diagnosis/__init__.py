"""Diagnosis of two runs: judges, suspects, the first difference over all ranks, checks of collectives.

Plugins of other distributions import the names of ``probe_diagnosis.api``, and nothing else of
this package: its modules may change between releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter
from probe_diagnosis import api

if TYPE_CHECKING:
    from probe_diagnosis.api import *  # noqa: F403

__all__ = api.__all__

__getattr__ = create_exporter(
    __name__,
    {"api": " ".join(api.__all__)},
    former={
        "chart_page": "escape_text render_chart_page render_figure",
        "collectives.calls": "api_of",
        "conditions.differences": "ConditionDifference ConditionKind find_condition_differences place_in_order",
        "conditions.file": "RunConditions parse_conditions",
        "conditions.condition_sentences": "condition_sentence",
        "difference.reasons": "CauseKind",
        "difference.search": "SearchResult search_timelines",
        "difference.nodes": "Node",
        "frames": "frames_of load_stacks own_frames",
        "judges.uninitialised": "uninitialised_slots",
        "line_chart": "ChartLine draw_chart",
        "timeline.order": "is_module is_move",
    },
    renamed={
        "CallView": "ComparedCall",
        "Cause": "CauseKind",
        "Difference": "ValueComparison",
        "Searched": "SearchResult",
        "depths": "list_call_depths",
        "whole_answer": "build_overall_answer",
    },
)

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
        "collectives.calls": "find_api",
        "conditions.differences": "ConditionDifference ConditionKind find_condition_differences place_in_order",
        "conditions.file": "RunConditions parse_conditions",
        "conditions.condition_sentences": "describe_condition",
        "difference.reasons": "CauseKind",
        "difference.search": "SearchResult search_timelines",
        "difference.nodes": "Node",
        "frames": "find_frames load_stacks select_own_frames",
        "judges.uninitialized": "find_uninitialized_slots",
        "line_chart": "ChartLine draw_chart",
        "timeline.order": "is_module is_move",
    },
    renamed={
        "CallView": "ComparedCall",
        "Cause": "CauseKind",
        "Difference": "ValueComparison",
        "Searched": "SearchResult",
        "api_of": "find_api",
        "condition_sentence": "describe_condition",
        "depths": "list_call_depths",
        "evidence_texts": "format_evidence_texts",
        "frames_of": "find_frames",
        "own_frame": "find_own_frame",
        "own_frames": "select_own_frames",
        "uninitialised_slots": "find_uninitialized_slots",
        "whole_answer": "build_overall_answer",
    },
)

"""Diagnosis of two runs: judges, suspects, the first difference over all ranks, checks of collectives.

The names that this module exports are the interface for plugins; each is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_diagnosis.answer.verdict.answer_file import serialize_answer
    from probe_diagnosis.answer.verdict.answerer import build_overall_answer
    from probe_diagnosis.answer.verdict.call_depth import CallDepth, list_call_depths
    from probe_diagnosis.chart_page import escape_text, render_chart_page, render_figure
    from probe_diagnosis.collectives.calls import api_of
    from probe_diagnosis.conditions.condition_sentences import condition_sentence
    from probe_diagnosis.conditions.differences import (
        ConditionDifference,
        ConditionKind,
        find_condition_differences,
        place_in_order,
    )
    from probe_diagnosis.conditions.file import RunConditions, parse_conditions
    from probe_diagnosis.difference.nodes import Node
    from probe_diagnosis.difference.reasons import Cause
    from probe_diagnosis.difference.search import SearchResult, search_timelines
    from probe_diagnosis.frames import frames_of, load_stacks, own_frame, own_frames
    from probe_diagnosis.judges.uninitialised import uninitialised_slots
    from probe_diagnosis.line_chart import ChartLine, draw_chart
    from probe_diagnosis.specs import DetectorSpec
    from probe_diagnosis.timeline.evidence import evidence_texts
    from probe_diagnosis.timeline.order import is_move
    from probe_diagnosis.timeline.timeline import Detection, Detector, Timeline
    from probe_diagnosis.timeline.views import CallView, Difference, DifferenceKind, is_module

__all__ = [
    "CallDepth",
    "CallView",
    "Cause",
    "ChartLine",
    "ConditionDifference",
    "ConditionKind",
    "Detection",
    "Detector",
    "DetectorSpec",
    "Difference",
    "DifferenceKind",
    "Node",
    "RunConditions",
    "SearchResult",
    "Timeline",
    "api_of",
    "build_overall_answer",
    "condition_sentence",
    "draw_chart",
    "escape_text",
    "evidence_texts",
    "find_condition_differences",
    "frames_of",
    "is_module",
    "is_move",
    "list_call_depths",
    "load_stacks",
    "own_frame",
    "own_frames",
    "parse_conditions",
    "place_in_order",
    "render_chart_page",
    "render_figure",
    "search_timelines",
    "serialize_answer",
    "uninitialised_slots",
]  # fmt: skip

__getattr__ = create_exporter(
    __name__,
    {
        "answer.verdict.answerer": "build_overall_answer",
        "answer.verdict.call_depth": "CallDepth list_call_depths",
        "answer.verdict.answer_file": "serialize_answer",
        "collectives.calls": "api_of",
        "conditions.differences": "ConditionDifference ConditionKind find_condition_differences place_in_order",
        "conditions.file": "RunConditions parse_conditions",
        "conditions.condition_sentences": "condition_sentence",
        "difference.reasons": "Cause",
        "difference.search": "SearchResult search_timelines",
        "difference.nodes": "Node",
        "frames": "frames_of load_stacks own_frame own_frames",
        "judges.uninitialised": "uninitialised_slots",
        "chart_page": "escape_text render_chart_page render_figure",
        "line_chart": "ChartLine draw_chart",
        "specs": "DetectorSpec",
        "timeline.evidence": "evidence_texts",
        "timeline.order": "is_move",
        "timeline.timeline": "Detection Detector Timeline",
        "timeline.views": "CallView Difference DifferenceKind is_module",
    },
    renamed={"Searched": "SearchResult", "depths": "list_call_depths", "whole_answer": "build_overall_answer"},
)

"""Diagnosis of two runs: judges, suspects, the first difference over all ranks, checks of collectives.

The names that this module exports are the interface for plugins; each is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_diagnosis.answer.answerer import whole_answer as whole_answer
    from probe_diagnosis.answer.depth import CallDepth as CallDepth
    from probe_diagnosis.answer.depth import depths as depths
    from probe_diagnosis.answer.file import serialize_answer as serialize_answer
    from probe_diagnosis.chart_page import escape_text as escape_text
    from probe_diagnosis.chart_page import render_chart_page as render_chart_page
    from probe_diagnosis.chart_page import render_figure as render_figure
    from probe_diagnosis.collectives.calls import api_of as api_of
    from probe_diagnosis.conditions.differences import ConditionDifference as ConditionDifference
    from probe_diagnosis.conditions.differences import ConditionKind as ConditionKind
    from probe_diagnosis.conditions.differences import find_condition_differences as find_condition_differences
    from probe_diagnosis.conditions.differences import place_in_order as place_in_order
    from probe_diagnosis.conditions.file import RunConditions as RunConditions
    from probe_diagnosis.conditions.file import parse_conditions as parse_conditions
    from probe_diagnosis.conditions.sentences import condition_sentence as condition_sentence
    from probe_diagnosis.difference.reasons import Cause as Cause
    from probe_diagnosis.difference.search import Searched as Searched
    from probe_diagnosis.difference.search import search_timelines as search_timelines
    from probe_diagnosis.difference.walking import Node as Node
    from probe_diagnosis.frames import frames_of as frames_of
    from probe_diagnosis.frames import load_stacks as load_stacks
    from probe_diagnosis.frames import own_frame as own_frame
    from probe_diagnosis.frames import own_frames as own_frames
    from probe_diagnosis.judges.uninitialised import uninitialised_slots as uninitialised_slots
    from probe_diagnosis.line_chart import ChartLine as ChartLine
    from probe_diagnosis.line_chart import draw_chart as draw_chart
    from probe_diagnosis.specs import DetectorSpec as DetectorSpec
    from probe_diagnosis.timeline.evidence import evidence_texts as evidence_texts
    from probe_diagnosis.timeline.order import is_move as is_move
    from probe_diagnosis.timeline.timeline import Detection as Detection
    from probe_diagnosis.timeline.timeline import Detector as Detector
    from probe_diagnosis.timeline.timeline import Timeline as Timeline
    from probe_diagnosis.timeline.views import CallView as CallView
    from probe_diagnosis.timeline.views import Difference as Difference
    from probe_diagnosis.timeline.views import DifferenceKind as DifferenceKind
    from probe_diagnosis.timeline.views import is_module as is_module


__getattr__ = create_exporter(
    __name__,
    {
        "answer.answerer": "whole_answer",
        "answer.depth": "CallDepth depths",
        "answer.file": "serialize_answer",
        "collectives.calls": "api_of",
        "conditions.differences": "ConditionDifference ConditionKind find_condition_differences place_in_order",
        "conditions.file": "RunConditions parse_conditions",
        "conditions.sentences": "condition_sentence",
        "difference.reasons": "Cause",
        "difference.search": "Searched search_timelines",
        "difference.walking": "Node",
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
)

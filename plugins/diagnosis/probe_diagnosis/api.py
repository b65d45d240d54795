"""The public names of probe-diagnosis, each imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_diagnosis.answer.verdict.answer_file import serialize_answer
    from probe_diagnosis.answer.verdict.answerer import build_overall_answer
    from probe_diagnosis.answer.verdict.call_depth import CallDepth, list_call_depths
    from probe_diagnosis.frames import find_own_frame
    from probe_diagnosis.specs import DetectorSpec
    from probe_diagnosis.timeline.compared_calls import ComparedCall, DifferenceKind, ValueComparison, ValueState
    from probe_diagnosis.timeline.evidence import format_evidence_texts
    from probe_diagnosis.timeline.timeline import Detection, Detector, Timeline

__all__ = [
    "CallDepth",
    "ComparedCall",
    "Detection",
    "Detector",
    "DetectorSpec",
    "DifferenceKind",
    "Timeline",
    "ValueComparison",
    "ValueState",
    "build_overall_answer",
    "find_own_frame",
    "format_evidence_texts",
    "list_call_depths",
    "serialize_answer",
]

__getattr__ = create_exporter(
    __name__,
    {
        "answer.verdict.answerer": "build_overall_answer",
        "answer.verdict.call_depth": "CallDepth list_call_depths",
        "answer.verdict.answer_file": "serialize_answer",
        "frames": "find_own_frame",
        "specs": "DetectorSpec",
        "timeline.evidence": "format_evidence_texts",
        "timeline.timeline": "Detection Detector Timeline",
        "timeline.compared_calls": "ComparedCall DifferenceKind ValueComparison ValueState",
    },
    renamed={
        "CallView": "ComparedCall",
        "Difference": "ValueComparison",
        "depths": "list_call_depths",
        "evidence_texts": "format_evidence_texts",
        "own_frame": "find_own_frame",
        "whole_answer": "build_overall_answer",
    },
)

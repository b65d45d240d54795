"""The public names of probe-diagnosis, each imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_diagnosis.answer.answerer import whole_answer
    from probe_diagnosis.answer.depth import CallDepth, depths
    from probe_diagnosis.answer.file import serialize_answer
    from probe_diagnosis.frames import own_frame
    from probe_diagnosis.specs import DetectorSpec
    from probe_diagnosis.timeline.evidence import evidence_texts
    from probe_diagnosis.timeline.timeline import Detection, Detector, Timeline
    from probe_diagnosis.timeline.views import CallView, Difference, DifferenceKind

__all__ = [
    "CallDepth",
    "CallView",
    "Detection",
    "Detector",
    "DetectorSpec",
    "Difference",
    "DifferenceKind",
    "Timeline",
    "depths",
    "evidence_texts",
    "own_frame",
    "serialize_answer",
    "whole_answer",
]

__getattr__ = create_exporter(
    __name__,
    {
        "answer.answerer": "whole_answer",
        "answer.depth": "CallDepth depths",
        "answer.file": "serialize_answer",
        "frames": "own_frame",
        "specs": "DetectorSpec",
        "timeline.evidence": "evidence_texts",
        "timeline.timeline": "Detection Detector Timeline",
        "timeline.views": "CallView Difference DifferenceKind",
    },
)

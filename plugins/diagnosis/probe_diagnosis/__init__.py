"""Diagnosis of two runs: judges, suspects, the first difference over all ranks, checks of collectives.

The names that this module exports are the interface for plugins; each is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import exporter

if TYPE_CHECKING:
    from probe_diagnosis.answer.answerer import whole_answer
    from probe_diagnosis.answer.depth import CallDepth, depths
    from probe_diagnosis.frames import own_frame, own_frames
    from probe_diagnosis.specs import DetectorSpec
    from probe_diagnosis.timeline.evidence import evidence_texts
    from probe_diagnosis.timeline.timeline import Detection, Detector, Timeline
    from probe_diagnosis.timeline.views import CallView, Difference, DifferenceKind

__all__ = [
    "CallDepth", "CallView", "Detection", "Detector", "DetectorSpec", "Difference", "DifferenceKind",
    "Timeline", "depths", "evidence_texts", "own_frame", "own_frames", "whole_answer",
]  # fmt: skip

__getattr__ = exporter(
    __name__,
    {
        "answer.answerer": "whole_answer",
        "answer.depth": "CallDepth depths",
        "frames": "own_frame own_frames",
        "specs": "DetectorSpec",
        "timeline.evidence": "evidence_texts",
        "timeline.timeline": "Detection Detector Timeline",
        "timeline.views": "CallView Difference DifferenceKind",
    },
)

"""The policy of first differences, asked in short."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from probe_diagnosis.timeline.evidence import format_evidence_texts
from probe_metrics.thresholds import load_thresholds

from probe_core.model import Verdict

nan, inf = math.nan, math.inf
NOISE = {
    name: count * float(ml_dtypes.finfo(getattr(ml_dtypes, name, None) or np.dtype(name)).eps)
    for name, count in load_thresholds("drift")["noise"].items()
}
ROUNDED_AS = {"complex64": "float32", "complex128": "float64"}


def evidence(verdict: Verdict) -> str:
    (text,) = format_evidence_texts(verdict)
    return text


def noise_of(name: str) -> float:
    return NOISE[ROUNDED_AS.get(name, name)]

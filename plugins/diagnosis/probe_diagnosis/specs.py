"""The spec of the hook ``probe_detectors``."""

from __future__ import annotations

from dataclasses import dataclass

from probe_core.plugins.specs import Spec


@dataclass(frozen=True, slots=True)
class DetectorSpec(Spec):
    """A detector of a kind of cause (makes a ``probe_diagnosis.api.Detector`` for each step and rank).

    Attributes:
        order: Detectors with a smaller number run first. If two detectors report the same call, the first finding is
            used.
    """

    order: int = 100

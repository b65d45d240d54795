"""The spec of this kit's hook."""

from __future__ import annotations

from dataclasses import dataclass

from probe_core.plugins.specs import Spec


@dataclass(frozen=True, slots=True)
class DetectorSpec(Spec):
    """A detector of a kind of cause (makes a ``probe_diagnosis.Detector`` for each step and rank).

    Attributes:
        order: Detectors with a smaller number come first; of two findings on one call, the first is kept.
    """

    order: int = 100

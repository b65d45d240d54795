"""Phases of a step in which the target is as near to a more precise run as the golden."""

from __future__ import annotations

from probe_diagnosis.limits import limits
from probe_diagnosis.phases.ladder_file import LadderFile
from probe_diagnosis.phases.ladder_search import Search
from probe_diagnosis.phases.ladder_steps import Step
from probe_diagnosis.phases.ladder_windows import windows_of

TIMES = "ladder_times_rounding"
"""Name of the evidence that holds the largest distance of a phase, as a multiple of rounding."""


class ReferencePhases:
    """The phases of both runs, compared with those of a more precise run.

    Args:
        target: The phases of the target.
        golden: The phases of the golden.
        reference: The phases of the more precise run.
        noise: The coarsest rounding of the recorded calls.
        carried: The coarsest rounding of earlier steps.
    """

    def __init__(
        self, target: LadderFile, golden: LadderFile, reference: LadderFile, noise: float, carried: float
    ) -> None:
        self._are_alike = len({len(windows_of(run)) for run in (target, golden, reference)}) == 1
        self._steps = [
            [step for step in Search(run, reference, noise, carried).steps() if step.is_effective]
            for run in (target, golden)
        ]

    def excuses(self, step: Step) -> bool:
        """Return True if a phase of the target is as near to the reference as the golden's, or nearly so.

        Settings are no values, and are not excused.
        """
        if step.rung.phase == "settings" or not self._are_alike:
            return False
        own = [one for one in self._steps[0] if one.part == step.part]
        if not own:
            return True
        distances = [
            next((one.evidence.get(TIMES) for one in steps if one.rung.key == step.rung.key), None)
            for steps in (own, self._steps[1])
        ]
        first, second = distances
        if not (isinstance(first, float) and isinstance(second, float)):
            return False
        return first <= limits().reference.factor * second

"""Phases of a step in which the target is as near to a more precise run as the golden."""

from __future__ import annotations

from probe_diagnosis.limits import limits
from probe_diagnosis.phases.optimizer_steps import split_optimizer_steps
from probe_diagnosis.phases.phase_differences import PhaseDifference
from probe_diagnosis.phases.phase_search import PhaseSearch
from probe_diagnosis.phases.phases_file import PhasesFile

TIMES_EVIDENCE = "step_phase_times_rounding"
"""Name of the evidence for the largest distance of a phase, as a multiple of rounding."""


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
        self, target: PhasesFile, golden: PhasesFile, reference: PhasesFile, noise: float, carried: float
    ) -> None:
        self._are_alike = len({len(split_optimizer_steps(run)) for run in (target, golden, reference)}) == 1
        self._steps = [
            [step for step in PhaseSearch(run, reference, noise, carried).iterate_differences() if step.is_effective]
            for run in (target, golden)
        ]

    def excuses(self, step: PhaseDifference) -> bool:
        """Return True if a phase of the target is as near to the reference as the golden's, or nearly so.

        Settings are never excused.
        """
        if step.step_phase.name == "settings" or not self._are_alike:
            return False
        target_steps = [candidate for candidate in self._steps[0] if candidate.part == step.part]
        if not target_steps:
            return True
        distances = [
            next(
                (
                    candidate.evidence.get(TIMES_EVIDENCE)
                    for candidate in steps
                    if candidate.step_phase.key == step.step_phase.key
                ),
                None,
            )
            for steps in (target_steps, self._steps[1])
        ]
        first, second = distances
        if not (isinstance(first, float) and isinstance(second, float)):
            return False
        return first <= limits().reference.factor * second

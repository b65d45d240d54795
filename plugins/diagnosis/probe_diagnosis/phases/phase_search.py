"""Search of the step phases of two runs for the first phase of a step that differs (docs/diagnosis.md#step-phases)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from functools import cached_property

from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.phases.optimizer_steps import (
    GRADIENT_STAGES,
    OptimizerStep,
    Values,
    find_unsettled_parameters,
    get_groups,
    iterate_differing_settings,
    split_optimizer_steps,
)
from probe_diagnosis.phases.parameter_names import rename_parameters
from probe_diagnosis.phases.phase_differences import (
    AFTER_BACKWARD,
    UNTIL_BACKWARD,
    Evidence,
    PhaseDifference,
    build_evidence,
    describe_stage,
    describe_unchanged,
    format_setting,
    format_worst,
)
from probe_diagnosis.phases.phase_distances import (
    PhaseDistances,
    format_names,
    get_magnitude,
    get_noise,
    measure_distances,
)
from probe_diagnosis.phases.phases_file import PhasesFile, PhaseValue, StepPhase

UNEXPLAINED_CLAUSE = (
    "leaves other parameters, although its settings and the statistics of its gradients, parameters and state are equal"
)
AGREE_CLAUSE, LESS_CLAUSE = "agree in their statistics within rounding", "differ far less"


class PhaseSearch:
    """A search of the step phases of a target and a golden.

    Args:
        target: The step phases of the target.
        golden: The step phases of the golden.
        noise: The coarsest rounding of the recorded calls.
        carried: The coarsest rounding of earlier steps, which parameters carry into this one.
    """

    def __init__(self, target: PhasesFile, golden: PhasesFile, noise: float, carried: float = 0.0) -> None:
        self._both = target, rename_parameters(golden, target)
        self._noise = noise
        self._carried = carried

    @cached_property
    def _windows(self) -> list[list[OptimizerStep]]:
        """The steps of optimizers of each run."""
        return [split_optimizer_steps(phases) for phases in self._both]

    @cached_property
    def _pairs(self) -> list[tuple[OptimizerStep, OptimizerStep]]:
        """The steps of both runs in pairs; empty if their numbers differ."""
        target, golden = self._windows
        return [*zip(target, golden)] if len(target) == len(golden) else []

    @property
    def step_count(self) -> int:
        """The number of steps of optimizers; 0 if both runs have other numbers of them."""
        return len(self._pairs)

    def iterate_differences(self) -> Iterator[PhaseDifference]:
        """Yield the phases that differ and that nothing before them explains, in the order of time."""
        yield from self._compare_inputs()
        for number, (target, golden) in enumerate(self._pairs):
            differences = list(self._compare_step(target, golden))
            yield from (replace(difference, optimizer_step=number) for difference in differences)
            if any(step.is_effective for step in differences):
                return  # what later steps show may follow from it

    def find_other_loss(self) -> PhaseDifference | None:
        """Return the first backward pass that starts from another value; None for none."""
        for target, golden in zip(*(phases.find_phases("loss") for phases in self._both)):
            values = _flatten_single_elements(target.values), _flatten_single_elements(golden.values)
            loss_distances = measure_distances(*values, self._noise)
            if names := loss_distances.find_differing(0.0):
                statement = Statement(
                    "the backward pass starts from another value", "", format_worst(loss_distances, names)
                )
                return PhaseDifference(
                    target, UNTIL_BACKWARD, statement, evidence=build_evidence(loss_distances, names)
                )
        return None

    def find_tied_parameter(self, name: str) -> PhaseDifference | None:
        """Return that a parameter whose gradient both runs recorded is a parameter of its own in one run only.

        In the other run, its name is a second name of another parameter, because their weights are tied.
        """
        owned = [
            {key for step_phase in phases.find_phases("gradient") for key in step_phase.values} for phases in self._both
        ]
        if not all(owned) or (name in owned[0]) == (name in owned[1]):
            return None
        side = 0 if name in owned[0] else 1
        own, other = ("target", "golden") if side == 0 else ("golden", "target")
        step_phase = self._both[side].find_phases("gradient")[0]
        clause = f"{name} is a parameter of its own in the {own}, and a second name of a tied weight in the {other}"
        return PhaseDifference(step_phase, UNTIL_BACKWARD, Statement(clause), evidence={"step_phase_parameter": name})

    def is_same_to_the_end(self) -> bool:
        """Return True if all steps of optimizers were captured in both runs, and no phase of them differs."""
        return self.are_parameters_same() and not any(any(self._compare_step(*pair)) for pair in self._pairs)

    def are_parameters_same(self) -> bool:
        """Return True if all steps of optimizers were captured in both runs, and leave equal parameters."""
        for target, golden in self._pairs:
            left = target.get_values("parameters_after"), golden.get_values("parameters_after")
            parameter_distances = measure_distances(*left, self._noise)  # that of the gradients
            if not left[0] or len(parameter_distances.multiples) != max(map(len, left)):
                return False
            unsettled = find_unsettled_parameters(target, golden, self._noise)
            if any(name not in unsettled for name in parameter_distances.find_differing(0.0)):
                return False
        return bool(self._pairs)

    def is_rounding_before(self) -> bool:
        """Return True if parameters differ before the step, but only those whose updates are rounding."""
        largest_multiple = 0.0
        for target, golden in self._pairs:
            parameters = target.get_values("parameters_before"), golden.get_values("parameters_before")
            parameter_distances = measure_distances(*parameters, self._carried)
            largest_multiple = max(largest_multiple, parameter_distances.largest_multiple)
            if not set(parameter_distances.find_differing(0.0)) <= find_unsettled_parameters(
                target, golden, self._noise
            ):
                return False
        return largest_multiple > 0

    def find_unsettled(self) -> set[str]:
        """Return the parameters whose updates are amplified rounding, see ``find_unsettled_parameters``."""
        target, golden = self._windows
        return find_unsettled_parameters(target[0], golden[0], self._noise) if target and golden else set()

    def list_unsettled_values(self) -> list[PhaseValue]:
        """Return the target's values of these parameters, and of the state that belongs to them."""
        names, windows = self.find_unsettled(), split_optimizer_steps(self._both[0])
        held = [windows[0].get_values(phase) for phase in ("parameters_before", "state_before")] if names else []
        return [
            value
            for values in held
            for key, value in values.items()
            if value is not None and (key in names or key.rpartition(".")[0] in names)
        ]

    def find_changed_buffers(self, module_path: str | None, explained_multiple: float) -> PhaseDifference | None:
        """Return that buffers agree before the step and differ after it; None for none.

        Args:
            module_path: The module whose buffers are compared; None for those of all modules.
            explained_multiple: The difference that is explained otherwise, as a multiple of rounding. As in all phases,
                only a difference of more than ``jump`` times as much counts (``limits.yaml``).
        """
        differing = self._buffers.find_differing(explained_multiple)
        names = [name for name in differing if module_path in (None, name.rpartition(".")[0])]
        if not names:
            return None
        step_phase = self._both[0].find_phases("buffers")[-1]
        statement = Statement("buffers differ after the step", "", format_worst(self._buffers, names))
        return PhaseDifference(step_phase, AFTER_BACKWARD, statement, evidence=build_evidence(self._buffers, names))

    @cached_property
    def _buffers(self) -> PhaseDistances:
        """The distances after the step of buffers that agree before it.

        The floating-point buffers of a module are measured relative to the largest of them: a running mean that is zero
        in theory contains only rounding.
        """
        before, after = (
            [_merge_values(phases.find_phases(name)) for phases in self._both] for name in ("buffers_before", "buffers")
        )
        earlier = measure_distances(before[0], before[1], self._noise).multiples
        groups: dict[tuple[str, bool], dict[str, PhaseValue | None]] = {}
        for name, value in after[0].items():
            if value is not None and earlier.get(name, 0.0) <= 1:
                is_rounded = get_noise(value.dtype) > 0
                groups.setdefault((name.rpartition(".")[0], is_rounded), {})[name] = value
        multiples: dict[str, float] = {}
        for (_, is_rounded), values in groups.items():
            golden = {name: after[1][name] for name in values if name in after[1]}
            multiples |= measure_distances(values, golden, self._noise, has_common_scale=is_rounded).multiples
        return PhaseDistances(multiples, *after)

    # -- up to the backward pass -------------------------------------------------------------

    def _compare_inputs(self) -> Iterator[PhaseDifference]:
        """Yield a batch that differs, and parameters that differ before the first step."""
        for phase, clause, noise in (
            ("batch", "the model receives another batch", 0.0),
            ("parameters_before", "parameters differ before the step", self._carried),
        ):
            step_phases = [phases.find_phases(phase)[:1] for phases in self._both]
            if not all(step_phases):
                continue
            input_distances = measure_distances(step_phases[0][0].values, step_phases[1][0].values, noise)
            carried = self.find_unsettled() if noise else set()
            if names := [name for name in input_distances.find_differing(0.0) if name not in carried]:
                clause = f"{_describe_one_sided(*(phases[0].values for phases in step_phases))}{clause}"
                statement = Statement(clause, "", format_worst(input_distances, names))
                yield PhaseDifference(
                    step_phases[0][0], UNTIL_BACKWARD, statement, evidence=build_evidence(input_distances, names)
                )

    def _measure_distances(self, target: Values, golden: Values, *, has_common_scale: bool = False) -> PhaseDistances:
        return measure_distances(
            target,
            golden,
            self._noise if has_common_scale else 0.0,
            has_common_scale=has_common_scale,
        )

    # -- from gradients to the end of the step -------------------------------------------------

    def _compare_step(self, target: OptimizerStep, golden: OptimizerStep) -> Iterator[PhaseDifference]:
        """Yield what differs in one step of an optimizer."""
        differing = list(self._find_one_sided_values(target, golden)) or list(self._compare_gradients(target, golden))
        yield from differing
        if not differing:
            yield from self._compare_settings(target, golden)
            yield from self._find_updates_of_one_run(target, golden)
        yield from describe_unchanged(target, golden)

    def _find_one_sided_values(self, target: OptimizerStep, golden: OptimizerStep) -> Iterator[PhaseDifference]:
        """Yield gradients, and the state of the optimizer before its step, that only one run has."""
        if not target.applied.values.keys() & golden.applied.values.keys():
            return  # optimizers of other tensors, such as copies of the parameters in another dtype
        windows = (target, golden)
        optimizer = target.applied.subject
        arrived = target.list_names("gradient") & golden.list_names("gradient")
        stepped = target.applied.values.keys() & golden.applied.values.keys()
        yield from self._find_values_of_one_run(
            windows, "gradient", lambda names: f"{_format_subject(names)} a gradient"
        )
        yield from self._find_values_of_one_run(
            windows, "state_before", lambda names: f"the state of {optimizer} holds {format_names(names)}"
        )
        yield from self._find_values_of_one_run(
            windows,
            "applied",
            lambda names: f"{optimizer} receives the gradient of {format_names(names)}, which arrives in both runs,",
            arrived & stepped,
        )

    def _find_values_of_one_run(
        self,
        windows: tuple[OptimizerStep, OptimizerStep],
        phase: str,
        describe: Callable[[Sequence[str]], str],
        among: Set[str] | None = None,
    ) -> Iterator[PhaseDifference]:
        """Yield the values of a phase that only one run has, of those ``among`` if it is given."""
        if any(phase in phases.not_captured for phases in self._both):
            return
        names = [window.list_names(phase) for window in windows]
        for side, word in enumerate(("target", "golden")):
            difference = names[side] - names[1 - side]
            one_sided_names = sorted(difference if among is None else difference & among)
            if one_sided_names:
                evidence: Evidence = {
                    "step_phase_parameter": one_sided_names[0], "step_phase_differing": len(one_sided_names),
                }  # fmt: skip
                step_phase = (windows[side].find_phases(phase) or [windows[side].applied])[0]
                statement = Statement(f"{describe(one_sided_names)} in the {word} only")
                yield PhaseDifference(step_phase, AFTER_BACKWARD, statement, True, evidence, windows[0].line)

    def _compare_gradients(self, target: OptimizerStep, golden: OptimizerStep) -> Iterator[PhaseDifference]:
        """Yield the first stage at which gradients differ that agreed before."""
        passes = [window.find_phases("gradient") for window in (target, golden)]
        if len(passes[0]) != len(passes[1]) or not passes[0]:
            return
        before = max(
            self._measure_distances(a.values, b.values, has_common_scale=True).largest_multiple for a, b in zip(*passes)
        )
        for stage, names in zip(GRADIENT_STAGES, zip(target.trace_stages(), golden.trace_stages())):
            stage_distances = self._measure_distances(*names, has_common_scale=True)
            if differing := stage_distances.find_differing(before):
                yield describe_stage(
                    stage, target, golden, stage_distances, differing, AGREE_CLAUSE if before <= 1 else LESS_CLAUSE
                )
                return
            before = max(before, stage_distances.largest_multiple)

    def _find_updates_of_one_run(self, target: OptimizerStep, golden: OptimizerStep) -> Iterator[PhaseDifference]:
        """Yield parameters that only one run's optimizer changes, of those that have a gradient."""
        for side, window, other_window in (("target", target, golden), ("golden", golden, target)):
            others = {name for group in get_groups(other_window) for name in group.parameters}
            if not set() < others < {name for group in get_groups(window) for name in group.parameters}:
                continue  # they may have other names
            names = [
                name
                for group in get_groups(window)
                for name in group.parameters
                if name not in others and (value := window.applied.values.get(name)) and get_magnitude(value)
            ]
            if names:
                text = (
                    f"{window.applied.subject} of the {side} steps {format_names(names)}, "
                    "that of the other run does not"
                )
                evidence: Evidence = {"step_phase_parameter": names[0], "step_phase_differing": len(names)}
                yield PhaseDifference(
                    window.find_last_phase("settings") or window.applied,
                    AFTER_BACKWARD,
                    Statement(text),
                    True,
                    evidence,
                )

    def are_gradients_same(self) -> bool:
        """Return True if the steps of optimizers take gradients that agree, in both runs."""
        for target, golden in self._pairs:
            gradient_distances = self._measure_distances(
                target.applied.values, golden.applied.values, has_common_scale=True
            )
            if len(gradient_distances.multiples) != len(gradient_distances.target) or gradient_distances.find_differing(
                0.0
            ):
                return False
        return bool(self._pairs)

    def _compare_settings(self, target: OptimizerStep, golden: OptimizerStep) -> Iterator[PhaseDifference]:
        """Yield settings of the optimizer that differ, or parameters that it changes in another way."""
        received = self._measure_distances(target.applied.values, golden.applied.values)
        before, after, state = (
            self._measure_distances(target.get_values(phase), golden.get_values(phase))
            for phase in ("parameters_before", "parameters_after", "state_before")
        )
        gradients = self._measure_distances(target.applied.values, golden.applied.values, has_common_scale=True)
        earlier_multiple = max(before.largest_multiple, gradients.largest_multiple)
        moved = after.find_exceeding(max(1.0, earlier_multiple))
        optimizer = target.applied.subject
        step_phase = target.find_last_phase("settings") or target.applied
        settings = list(iterate_differing_settings(target, golden))
        for key, values, names in settings:
            scope = "" if len(names) == len(received.target) else f" of {format_names(names)}"
            moved_names = [name for name in moved if name in names]
            effect = ", and leaves other parameters" if moved_names else ""
            sides = f"{format_setting(values[0])} against {format_setting(values[1])}"
            clause = f"{optimizer} steps with {key} {sides}{scope}{effect}"
            statement = Statement(clause, "", format_worst(after, moved_names) if moved_names else "")
            evidence: Evidence = {"argument": f"{step_phase.key}.{key}", "argument_values": sides}
            evidence |= build_evidence(after, moved_names) if moved_names else {}
            yield PhaseDifference(step_phase, AFTER_BACKWARD, statement, bool(moved_names), evidence)
        changed = after.find_differing(earlier_multiple)
        is_equal_before = not any(distances.largest_multiple for distances in (received, before, state))
        is_complete = len(received.multiples) == len(received.target)
        if changed and not settings and is_equal_before and is_complete and golden.applied.subject == optimizer:
            statement = Statement(f"{optimizer} {UNEXPLAINED_CLAUSE}", "", format_worst(after, changed))
            last_phase = target.find_last_phase("parameters_after") or step_phase
            yield PhaseDifference(
                last_phase, AFTER_BACKWARD, statement, True, build_evidence(after, changed), target.line
            )


def _merge_values(step_phases: Sequence[StepPhase]) -> Values:
    """Return the values of several phases; of values with the same name, the last one."""
    return {name: value for step_phase in step_phases for name, value in step_phase.values.items()}


def _flatten_single_elements(values: Values) -> Values:
    """Return values whose tensors of a single element have no dimensions."""
    return {
        name: replace(value, shape=()) if value is not None and set(value.shape) == {1} else value
        for name, value in values.items()
    }


def _describe_one_sided(target: Values, golden: Values) -> str:
    """Return the beginning of a sentence on the values that only one run has; empty if there are none."""
    for names, others, side in ((target, golden, "target"), (golden, target, "golden")):
        if one_sided_names := [name for name in names if name not in others]:
            return f"{format_names(one_sided_names)} exist{'s' * (len(one_sided_names) == 1)} in the {side} only, and "
    return ""


def _format_subject(names: Sequence[str]) -> str:
    return f"{format_names(names)} {'has' if len(names) == 1 else 'have'}"

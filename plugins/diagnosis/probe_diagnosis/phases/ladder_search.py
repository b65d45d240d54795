"""Search of two ladders for the first phase of a step that differs (docs/diagnosis.md#the-ladder)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from functools import cached_property

from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.phases.ladder_file import LadderFile, Measured
from probe_diagnosis.phases.ladder_steps import (
    BEFORE,
    BEHIND,
    Evidence,
    Step,
    listed,
    numbers_of,
    said,
    step_of_stage,
    step_of_unchanged,
)
from probe_diagnosis.phases.ladder_values import Distances, distances, size_of, some
from probe_diagnosis.phases.ladder_windows import (
    STAGES,
    Values,
    Window,
    differing_settings,
    groups_of,
    unsettled_in,
    windows_of,
)

ALTHOUGH = (
    "leaves other parameters, although its settings and the statistics of the gradients, the parameters and "
    "the state that it takes are equal"
)
AGREE, LESS = "agree in their statistics within rounding", "differ far less"


class Search:
    """A search of the ladders of a target and a golden.

    Args:
        target: The ladder of the target.
        golden: The ladder of the golden.
        noise: The coarsest rounding of the recorded calls.
        carried: The coarsest rounding of earlier steps, which parameters carry into this one.
    """

    def __init__(self, target: LadderFile, golden: LadderFile, noise: float, carried: float = 0.0) -> None:
        self._both = target, golden
        self._noise = noise
        self._carried = carried

    @cached_property
    def _windows(self) -> list[list[Window]]:
        """The steps of optimizers of each run."""
        return [windows_of(ladder) for ladder in self._both]

    @cached_property
    def _pairs(self) -> list[tuple[Window, Window]]:
        """The steps of both runs in pairs; empty if their numbers differ."""
        target, golden = self._windows
        return [*zip(target, golden)] if len(target) == len(golden) else []

    def steps(self) -> Iterator[Step]:
        """Yield the phases that differ and that nothing before them explains, in the order of time."""
        yield from self._taken_in()
        for target, golden in self._pairs:
            found = list(self._of_step(target, golden))
            yield from found
            if any(step.is_effective for step in found):
                return  # what later steps show may follow from it

    def is_same_to_the_end(self) -> bool:
        """Return True if all steps of optimizers were captured in both runs, and no phase of them differs."""
        return self.are_parameters_same() and not any(any(self._of_step(*pair)) for pair in self._pairs)

    def are_parameters_same(self) -> bool:
        """Return True if all steps of optimizers were captured in both runs, and leave equal parameters."""
        for target, golden in self._pairs:
            left = target.values("parameters_after"), golden.values("parameters_after")
            found = distances(*left, self._noise)  # that of the gradients
            if not left[0] or len(found.times) != max(map(len, left)):
                return False
            unsettled = unsettled_in(target, golden, self._noise)
            if any(name not in unsettled for name in found.beyond(0.0)):
                return False
        return bool(self._pairs)

    def is_rounding_before(self) -> bool:
        """Return True if parameters that differ before the step are those of which an update is rounding."""
        worst = 0.0
        for target, golden in self._pairs:
            before = target.values("parameters_before"), golden.values("parameters_before")
            held = distances(*before, self._carried)
            worst = max(worst, held.worst)
            if not set(held.beyond(0.0)) <= unsettled_in(target, golden, self._noise):
                return False
        return worst > 0

    def unsettled(self) -> set[str]:
        """Return the parameters whose updates are amplified rounding, see ``unsettled_in``."""
        target, golden = self._windows
        return unsettled_in(target[0], golden[0], self._noise) if target and golden else set()

    def unsettled_values(self) -> list[Measured]:
        """Return the target's values of these parameters, and of the state that belongs to them."""
        names, windows = self.unsettled(), windows_of(self._both[0])
        held = [windows[0].values(phase) for phase in ("parameters_before", "state_before")] if names else []
        return [
            value
            for values in held
            for key, value in values.items()
            if value is not None and (key in names or key.rpartition(".")[0] in names)
        ]

    # -- up to the backward pass -------------------------------------------------------------

    def _taken_in(self) -> Iterator[Step]:
        """Yield a batch that differs, and parameters that differ before the first step."""
        for phase, what, noise in (
            ("batch", "the model receives another batch", 0.0),
            ("parameters_before", "parameters differ before the step", self._carried),
        ):
            rungs = [ladder.of(phase)[:1] for ladder in self._both]
            if not all(rungs):
                continue
            found = distances(rungs[0][0].values, rungs[1][0].values, noise)
            carried = self.unsettled() if noise else set()
            if names := [name for name in found.beyond(0.0) if name not in carried]:
                statement = Statement(what, "", listed(found, names))
                yield Step(rungs[0][0], BEFORE, statement, evidence=numbers_of(found, names))

    def _apart(self, target: Values, golden: Values, *, together: bool = False) -> Distances:
        return distances(target, golden, self._noise if together else 0.0, together=together)

    # -- from gradients to the end of the step -------------------------------------------------

    def _of_step(self, target: Window, golden: Window) -> Iterator[Step]:
        """Yield what differs in one step of an optimizer."""
        differing = list(self._of_one_run(target, golden)) or list(self._gradients(target, golden))
        yield from differing
        if not differing:
            yield from self._settings(target, golden)
            yield from self._of_one(target, golden)
        yield from step_of_unchanged(target, golden)

    def _of_one_run(self, target: Window, golden: Window) -> Iterator[Step]:
        """Yield gradients, and the state of the optimizer before its step, that only one run has."""
        if not target.applied.values.keys() & golden.applied.values.keys():
            return  # the parameters may have other names
        windows = (target, golden)
        optimizer = target.applied.subject
        arrived = target.names("gradient") & golden.names("gradient")
        stepped = target.applied.values.keys() & golden.applied.values.keys()
        yield from self._lone(windows, "gradient", lambda names: f"{_have(names)} a gradient")
        yield from self._lone(
            windows, "state_before", lambda names: f"the state of {optimizer} holds {some(names)}"
        )
        yield from self._lone(
            windows,
            "applied",
            lambda names: f"{optimizer} takes the gradient of {some(names)}, which arrives in both runs,",
            arrived & stepped,
        )

    def _lone(
        self,
        windows: tuple[Window, Window],
        phase: str,
        told: Callable[[Sequence[str]], str],
        among: Set[str] | None = None,
    ) -> Iterator[Step]:
        """Yield the values of a phase that only one run has, of those ``among`` if it is given."""
        if any(phase in ladder.not_captured for ladder in self._both):
            return
        names = [one.names(phase) for one in windows]
        for side, word in enumerate(("target", "golden")):
            lone = names[side] - names[1 - side]
            alone = sorted(lone if among is None else lone & among)
            if alone:
                evidence: Evidence = {"ladder_parameter": alone[0], "ladder_differing": len(alone)}
                rung = (windows[side].of(phase) or [windows[side].applied])[0]
                statement = Statement(f"{told(alone)} in the {word} only")
                yield Step(rung, BEHIND, statement, True, evidence, windows[0].line)

    def _gradients(self, target: Window, golden: Window) -> Iterator[Step]:
        """Yield the first stage at which gradients differ that agreed before."""
        passes = [one.of("gradient") for one in (target, golden)]
        if len(passes[0]) != len(passes[1]) or not passes[0]:
            return
        before = max(self._apart(a.values, b.values, together=True).worst for a, b in zip(*passes))
        for stage, names in zip(STAGES, zip(target.stages(), golden.stages())):
            found = self._apart(*names, together=True)
            if apart := found.beyond(before):
                yield step_of_stage(stage, target, golden, found, apart, AGREE if before <= 1 else LESS)
                return
            before = max(before, found.worst)

    def _of_one(self, target: Window, golden: Window) -> Iterator[Step]:
        """Yield parameters that only one run's optimizer changes, of those that have a gradient."""
        for side, one, other in (("target", target, golden), ("golden", golden, target)):
            others = {name for group in groups_of(other) for name in group.parameters}
            if not set() < others < {name for group in groups_of(one) for name in group.parameters}:
                continue  # they may have other names
            names = [
                name
                for group in groups_of(one)
                for name in group.parameters
                if name not in others and (value := one.applied.values.get(name)) and size_of(value)
            ]
            if names:
                text = (
                    f"{one.applied.subject} of the {side} steps {some(names)}, that of the other run does not"
                )
                evidence: Evidence = {"ladder_parameter": names[0], "ladder_differing": len(names)}
                yield Step(one.one("settings") or one.applied, BEHIND, Statement(text), True, evidence)

    def are_gradients_same(self) -> bool:
        """Return True if the steps of optimizers take gradients that agree, in both runs."""
        for target, golden in self._pairs:
            found = self._apart(target.applied.values, golden.applied.values, together=True)
            if len(found.times) != len(found.target) or found.beyond(0.0):
                return False
        return bool(self._pairs)

    def _settings(self, target: Window, golden: Window) -> Iterator[Step]:
        """Yield settings of the optimizer that differ, or parameters that it changes in another way."""
        taken = self._apart(target.applied.values, golden.applied.values)
        held = self._apart(target.values("parameters_before"), golden.values("parameters_before"))
        left = self._apart(target.values("parameters_after"), golden.values("parameters_after"))
        state = self._apart(target.values("state_before"), golden.values("state_before"))
        gradients = self._apart(target.applied.values, golden.applied.values, together=True)
        before = max(held.worst, gradients.worst)
        changed, moved = left.beyond(before), left.above(max(1.0, before))
        settings = list(differing_settings(target, golden))
        optimizer = target.applied.subject
        rung = target.one("settings") or target.applied
        for key, values, names in settings:
            whose = "" if len(names) == len(taken.target) else f" of {some(names)}"
            hit = [name for name in moved if name in names]
            after = ", and leaves other parameters" if hit else ""
            sides = f"{said(values[0])} against {said(values[1])}"
            clause = f"{optimizer} steps with {key} {sides}{whose}{after}"
            statement = Statement(clause, "", listed(left, hit) if hit else "")
            evidence: Evidence = {"argument": f"{rung.key}.{key}", "argument_values": sides}
            evidence |= numbers_of(left, hit) if hit else {}
            yield Step(rung, BEHIND, statement, bool(hit), evidence)
        is_equal = not (taken.worst or held.worst or state.worst) and len(taken.times) == len(taken.target)
        if changed and not settings and is_equal and golden.applied.subject == optimizer:
            statement = Statement(f"{optimizer} {ALTHOUGH}", "", listed(left, changed))
            behind = target.one("parameters_after") or rung
            yield Step(behind, BEHIND, statement, True, numbers_of(left, changed), target.line)


def _have(names: Sequence[str]) -> str:
    return f"{some(names)} {'has' if len(names) == 1 else 'have'}"

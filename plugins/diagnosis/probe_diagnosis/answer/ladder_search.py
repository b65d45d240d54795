"""Search of two ladders for the first phase of a step that differs (docs/diagnosis.md#the-ladder)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from probe_diagnosis.answer.ladder_file import Group, LadderFile, Measured, Rung, Setting
from probe_diagnosis.answer.ladder_values import Distances, differ, distances, limits, noise_of, size_of, some
from probe_diagnosis.difference.statement import Statement

Evidence = dict[str, "float | int | str"]
Values = Mapping[str, "Measured | None"]

BEFORE, BEHIND = "before", "behind"
"""Parts of a step: up to the backward pass, and from its gradients to the end."""


STAGES = ("accumulated", "reduced", "applied")
"""Phases that change gradients behind a backward pass, in the order of time."""

BEGINS = frozenset(
    {"batch", "forward", "loss", "gradient", "accumulated", "reduced", "unscaled", "clipped", "settings"}
)
"""Phases that belong to the next step of an optimizer."""

ALTHOUGH = (
    "leaves other parameters, although its settings and the statistics of the gradients, the parameters and "
    "the state that it takes are equal"
)
AGREE, LESS = "agree in their statistics within rounding", "differ far less"


@dataclass(frozen=True, slots=True)
class Step:
    """A phase of a step that differs.

    Attributes:
        rung: The rung that shows it.
        part: ``BEFORE`` or ``BEHIND``.
        statement: A clause on it that can stand alone.
        is_effective: True if values differ by it beyond rounding.
        evidence: The numbers behind it.
        where: The line of code, if it is not that of the rung.
    """

    rung: Rung
    part: str
    statement: Statement
    is_effective: bool = True
    evidence: Evidence = field(default_factory=dict)
    where: str = ""


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

    def steps(self) -> Iterator[Step]:
        """Yield the phases that differ and that nothing before them explains, in the order of time."""
        yield from self._taken_in()
        windows = [_windows(ladder) for ladder in self._both]
        if len(windows[0]) != len(windows[1]):
            return
        for target, golden in zip(*windows):
            found = list(self._of_step(target, golden))
            yield from found
            if any(step.is_effective for step in found):
                return  # what later steps show may follow from it

    def is_same_to_the_end(self) -> bool:
        """Return True if all steps of optimizers were captured in both runs, and no phase of them differs."""
        windows = [_windows(ladder) for ladder in self._both]
        return self.are_parameters_same() and not any(
            any(self._of_step(target, golden)) for target, golden in zip(*windows)
        )

    def are_parameters_same(self) -> bool:
        """Return True if all steps of optimizers were captured in both runs, and leave equal parameters."""
        windows = [_windows(ladder) for ladder in self._both]
        if not windows[0] or len(windows[0]) != len(windows[1]):
            return False
        for target, golden in zip(*windows):
            left = target.values("parameters_after"), golden.values("parameters_after")
            found = distances(*left, self._noise)  # that of the gradients
            if not left[0] or len(found.times) != max(map(len, left)):
                return False
            unsettled = _unsettled(target, golden, self._noise)
            if any(name not in unsettled for name in found.beyond(0.0)):
                return False
        return True

    def is_rounding_before(self) -> bool:
        """Return True if parameters that differ before the step are those of which an update is rounding."""
        windows = [_windows(ladder) for ladder in self._both]
        if len(windows[0]) != len(windows[1]):
            return False
        worst = 0.0
        for target, golden in zip(*windows):
            before = target.values("parameters_before"), golden.values("parameters_before")
            held = distances(*before, self._carried)
            worst = max(worst, held.worst)
            if not set(held.beyond(0.0)) <= _unsettled(target, golden, self._noise):
                return False
        return worst > 0

    def unsettled(self) -> set[str]:
        """Return the parameters whose updates are amplified rounding, see ``_unsettled``."""
        windows = [_windows(ladder) for ladder in self._both]
        return _unsettled(windows[0][0], windows[1][0], self._noise) if all(windows) else set()

    def unsettled_values(self) -> list[Measured]:
        """Return the target's values of these parameters, and of the state that belongs to them."""
        names, windows = self.unsettled(), _windows(self._both[0])
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
                statement = Statement(what, "", _list(found, names))
                yield Step(rungs[0][0], BEFORE, statement, evidence=_numbers(found, names))

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
        yield from _unchanged(target, golden)

    def _of_one_run(self, target: Window, golden: Window) -> Iterator[Step]:
        """Yield gradients, and the state of the optimizer before its step, that only one run has."""
        if not target.applied.values.keys() & golden.applied.values.keys():
            return  # the parameters may have other names
        windows = (target, golden)
        for phase in ("gradient", "state_before"):
            if any(phase in ladder.not_captured for ladder in self._both):
                continue
            names = [one.names(phase) for one in windows]
            for side, word in enumerate(("target", "golden")):
                alone = sorted(names[side] - names[1 - side])
                if alone:
                    evidence: Evidence = {"ladder_parameter": alone[0], "ladder_differing": len(alone)}
                    have = f"{some(alone)} {'has' if len(alone) == 1 else 'have'} a gradient"
                    held = f"the state of {target.applied.subject} holds {some(alone)}"
                    text = f"{have if phase == 'gradient' else held} in the {word} only"
                    rung = windows[side].of(phase)[0]
                    yield Step(rung, BEHIND, Statement(text), True, evidence, target.line)

    def _gradients(self, target: Window, golden: Window) -> Iterator[Step]:
        """Yield the first stage at which gradients differ that agreed before."""
        passes = [one.of("gradient") for one in (target, golden)]
        if len(passes[0]) != len(passes[1]) or not passes[0]:
            return
        before = max(self._apart(a.values, b.values, together=True).worst for a, b in zip(*passes))
        for stage, names in zip(STAGES, zip(target.stages(), golden.stages())):
            found = self._apart(*names, together=True)
            if apart := found.beyond(before):
                yield _of_stage(stage, target, golden, found, apart, AGREE if before <= 1 else LESS)
                return
            before = max(before, found.worst)

    def _of_one(self, target: Window, golden: Window) -> Iterator[Step]:
        """Yield parameters that only one run's optimizer changes, of those that have a gradient."""
        for side, one, other in (("target", target, golden), ("golden", golden, target)):
            others = {name for group in _groups(other) for name in group.parameters}
            if not set() < others < {name for group in _groups(one) for name in group.parameters}:
                continue  # they may have other names
            names = [
                name
                for group in _groups(one)
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
        windows = [_windows(ladder) for ladder in self._both]
        if not windows[0] or len(windows[0]) != len(windows[1]):
            return False
        for target, golden in zip(*windows):
            found = self._apart(target.applied.values, golden.applied.values, together=True)
            if len(found.times) != len(found.target) or found.beyond(0.0):
                return False
        return True

    def _settings(self, target: Window, golden: Window) -> Iterator[Step]:
        """Yield settings of the optimizer that differ, or parameters that it changes in another way."""
        taken = self._apart(target.applied.values, golden.applied.values)
        held = self._apart(target.values("parameters_before"), golden.values("parameters_before"))
        left = self._apart(target.values("parameters_after"), golden.values("parameters_after"))
        state = self._apart(target.values("state_before"), golden.values("state_before"))
        gradients = self._apart(target.applied.values, golden.applied.values, together=True)
        before = max(held.worst, gradients.worst)
        changed, moved = left.beyond(before), left.above(max(1.0, before))
        settings = list(_differing(target, golden))
        optimizer = target.applied.subject
        rung = target.one("settings") or target.applied
        for key, values, names in settings:
            whose = "" if len(names) == len(taken.target) else f" of {some(names)}"
            hit = [name for name in moved if name in names]
            after = ", and leaves other parameters" if hit else ""
            said = f"{_said(values[0])} against {_said(values[1])}"
            clause = f"{optimizer} steps with {key} {said}{whose}{after}"
            statement = Statement(clause, "", _list(left, hit) if hit else "")
            evidence: Evidence = {"argument": f"{rung.key}.{key}", "argument_values": said}
            evidence |= _numbers(left, hit) if hit else {}
            yield Step(rung, BEHIND, statement, bool(hit), evidence)
        is_equal = not (taken.worst or held.worst or state.worst) and len(taken.times) == len(taken.target)
        if changed and not settings and is_equal and golden.applied.subject == optimizer:
            statement = Statement(f"{optimizer} {ALTHOUGH}", "", _list(left, changed))
            behind = target.one("parameters_after") or rung
            yield Step(behind, BEHIND, statement, True, _numbers(left, changed), target.line)


@dataclass(frozen=True, slots=True)
class Window:
    """The rungs of one step of an optimizer: from the end of the step before to its own."""

    rungs: tuple[Rung, ...]
    applied: Rung

    @property
    def line(self) -> str:
        """The line of code that made the optimizer step."""
        return (self.one("settings") or self.applied).where

    def of(self, phase: str) -> list[Rung]:
        """Return the rungs of a phase."""
        return [rung for rung in self.rungs if rung.phase == phase]

    def one(self, phase: str) -> Rung | None:
        """Return the last rung of a phase; None if there is none."""
        return next(iter(self.of(phase)[::-1]), None)

    def names(self, phase: str) -> set[str]:
        """Return the names of all values of a phase."""
        return {name for rung in self.of(phase) for name, value in rung.values.items() if value is not None}

    def values(self, phase: str) -> Values:
        """Return the values of the last rung of a phase."""
        rung = self.one(phase)
        return rung.values if rung is not None else {}

    def stages(self) -> list[Values]:
        """Return the gradients of parameters after each of the ``STAGES``."""
        held: dict[str, Measured | None] = {}
        for rung in self.of("gradient"):
            held.update(rung.values)
        found: list[Values] = []
        for stage in STAGES:
            for rung in self.of(stage):
                held = {**held, **rung.values}
            found.append({name: value for name, value in held.items() if name in self.applied.values})
        return found


def _unsettled(target: Window, golden: Window, noise: float) -> set[str]:
    """Return the parameters of which some gradients are rounding beside the largest: zero in theory.

    An optimizer that divides by their size, such as Adam, makes an update of that rounding. Of a part of a
    parameter, its average square in the state of the optimizer shows it.
    """
    found: set[str] = set()
    least = max(noise, noise_of("float32"))
    for one in (target, golden):
        sizes = {name: size_of(value) for name, value in one.applied.values.items() if value is not None}
        largest = max(sizes.values(), default=0.0)
        found.update(name for name, size in sizes.items() if size <= least * largest)
        state = one.values("state_after") or one.values("state_before")
        for name in sizes:
            squares = [v for key, v in state.items() if v and key.startswith(f"{name}.") and v.statistics]
            found.update(
                name for v in squares if v.shape and 0 < v.statistics[1] <= least**2 * v.statistics[0]
            )
    return found


def _groups(one: Window) -> tuple[Group, ...]:
    rung = one.one("settings")
    return rung.groups if rung is not None else ()


def _windows(ladder: LadderFile) -> list[Window]:
    """Return the steps of optimizers."""
    found: list[Window] = []
    begun = 0
    ends = [n for n, rung in enumerate(ladder.rungs) if rung.phase == "applied"]
    for place, end in enumerate(ends):
        last = ends[place + 1] if place + 1 < len(ends) else len(ladder.rungs)
        stop = next((n for n in range(end, last) if ladder.rungs[n].phase in BEGINS), last)
        found.append(Window(ladder.rungs[begun:stop], ladder.rungs[end]))
        begun = stop
    return found


def _of_stage(
    stage: str, target: Window, golden: Window, found: Distances, names: Sequence[str], agree: str
) -> Step:
    """Return the stage at which gradients differ that agreed before."""
    shown = _list(found, names)
    numbers = _numbers(found, names)
    rung = next((rung for rung in target.of(stage)[::-1] if names[0] in rung.values), target.applied)
    where = target.line
    if stage == "accumulated":
        adds = [any(names[0] in rung.values for rung in one.of(stage)) for one in (target, golden)]
        who = "both runs add" if all(adds) else "the target adds" if adds[0] else "the golden adds"
        rest = "" if all(adds) else f", the {'golden' if adds[0] else 'target'} does not"
        last = (target.of("loss") or [rung])[-1]
        clause = f"{who} the gradients of this backward pass to earlier ones{rest}, and the sums differ"
        return Step(rung, BEHIND, Statement(clause, "", shown), evidence=numbers, where=last.where)
    if stage == "reduced":
        clause = f"gradients {agree} before their reduction over the ranks, and differ after it"
        return Step(rung, BEHIND, Statement(clause, "", shown), evidence=numbers, where=where)
    factor = _factor(found)
    times = f": all {len(found.times)} are {factor:.6g} times the golden's" if factor else ""
    changed, line = _changed(target, golden)
    clause = (
        f"gradients {agree} when the backward pass is over, and differ when "
        f"{target.applied.subject} takes them{times}{changed}"
    )
    if factor:
        numbers["factor"] = factor
    return Step(rung, BEHIND, Statement(clause, "", shown), evidence=numbers, where=line or where)


def _factor(found: Distances) -> float:
    """Return the factor between the norms of all gradients, if there is one; else 0."""
    factors = []
    for name in found.times:
        target, golden = found.target[name], found.golden[name]
        if target is not None and golden is not None and golden.statistics[3]:
            factors.append(target.statistics[3] / golden.statistics[3])
    if len(factors) < 2 or min(factors) <= 0:
        return 0.0
    middle = sorted(factors)[len(factors) // 2]
    return middle if max(factors) - min(factors) <= limits()["one_factor"] * middle else 0.0


def _changed(target: Window, golden: Window) -> tuple[str, str]:
    """Return a clause on clipping and unscaling that differ, with its line of code; else empty texts."""
    made = [[rung for rung in one.rungs if rung.phase in ("unscaled", "clipped")] for one in (target, golden)]
    said = [[_call(rung) for rung in one] for one in made]
    if said[0] == said[1]:
        for first, second in zip(*made):
            found = distances(first.values, second.values, 0.0)
            if names := found.beyond(0.0):
                return f"; {_call(first)} meets another {found.shown(names[0])}", first.where
        return "", ""
    line = next((rung.where for rung in (*made[0], *made[1]) if rung.where), "")
    if not said[1] or not said[0]:
        who, other = ("target", "golden") if said[0] else ("golden", "target")
        return f"; the {who} calls {', '.join(said[0] or said[1])}, the {other} does not", line
    return f"; the target calls {', '.join(said[0])}, the golden {', '.join(said[1])}", line


def _call(rung: Rung) -> str:
    """Return a call of clipping or unscaling as text."""
    if rung.phase == "unscaled":
        return "GradScaler.unscale_"
    limits_of = [f"{key}={_said(value)}" for key, value in rung.facts.items() if key != "function"]
    return f"{rung.subject}({', '.join(limits_of)})"


def _differing(target: Window, golden: Window) -> Iterator[tuple[str, tuple[Setting, Setting], list[str]]]:
    """Yield each setting of the optimizer that differs: its name, both values, and the parameters."""
    rungs = target.one("settings"), golden.one("settings")
    if rungs[0] is None or rungs[1] is None:
        return
    harmless = set(limits()["harmless"])
    sides = [
        {name: group.settings for group in rung.groups for name in group.parameters} for rung in rungs if rung
    ]
    found: dict[tuple[str, Setting, Setting], list[str]] = {}
    for name in sides[0].keys() & sides[1].keys():
        first, second = sides[0][name], sides[1][name]
        for key in first.keys() & second.keys() - harmless:
            if differ(first[key], second[key]):
                found.setdefault((key, first[key], second[key]), []).append(name)
    order = {name: place for place, name in enumerate(sides[0])}
    for (key, one, other), names in sorted(found.items(), key=lambda item: (-len(item[1]), item[0][0])):
        yield key, (one, other), sorted(names, key=order.__getitem__)


def _unchanged(target: Window, golden: Window) -> Iterator[Step]:
    """Yield that a step left far more elements unchanged than the golden's did, or far fewer."""
    rungs = target.one("parameters_after"), golden.one("parameters_after")
    if rungs[0] is None or rungs[1] is None:
        return
    counts = [[sum(pair[n] for pair in rung.unchanged.values()) for n in (0, 1)] for rung in rungs if rung]
    if not counts[0][1] or counts[0][1] != counts[1][1]:
        return
    shares = [count / size for count, size in counts]
    if abs(shares[0] - shares[1]) < limits()["unchanged"]:
        return
    kinds = [", ".join(sorted({v.dtype for v in rung.values.values() if v})) for rung in rungs if rung]
    dtypes = f"; they are of {kinds[0]}, the golden's of {kinds[1]}" if kinds[0] != kinds[1] else ""
    text = (
        f"{target.applied.subject} leaves {shares[0]:.0%} of {counts[0][1]:,} sampled elements of its "
        f"parameters unchanged, the golden's {shares[1]:.0%}{dtypes}"
    )
    evidence: Evidence = {"unchanged": shares[0], "golden_unchanged": shares[1], "sampled": counts[0][1]}
    yield Step(rungs[0], BEHIND, Statement(text), False, evidence, target.line)


def _numbers(found: Distances, names: Sequence[str]) -> Evidence:
    return {
        "ladder_parameter": names[0],
        "ladder_differing": len(names),
        "ladder_compared": len(found.times),
        "ladder_times_rounding": found.times[names[0]],
    }


def _list(found: Distances, names: Sequence[str]) -> str:
    """Return the value that differs most, with the number of the others."""
    return found.shown(names[0]) + (f"; {len(names) - 1} more differ" if len(names) > 1 else "")


def _said(value: Setting) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_said, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)

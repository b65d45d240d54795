"""The steps of optimizers in the phases of a step (docs/diagnosis.md#the-ladder)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probe_diagnosis.phases.ladder_file import Group, LadderFile, Measured, Rung, Setting
from probe_diagnosis.phases.ladder_values import differ, limits, noise_of, size_of

Values = Mapping[str, "Measured | None"]

STAGES = ("accumulated", "reduced", "applied")
"""Phases that change gradients behind a backward pass, in the order of time."""

BEGINS = frozenset(
    {"batch", "forward", "loss", "gradient", "accumulated", "reduced", "unscaled", "clipped", "settings"}
)
"""Phases that belong to the next step of an optimizer."""


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


def unsettled_in(target: Window, golden: Window, noise: float) -> set[str]:
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


def groups_of(window: Window) -> tuple[Group, ...]:
    """Return the groups of parameters of the optimizer; empty if its settings were not captured."""
    rung = window.one("settings")
    return rung.groups if rung is not None else ()


def windows_of(ladder: LadderFile) -> list[Window]:
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


def differing_settings(
    target: Window, golden: Window
) -> Iterator[tuple[str, tuple[Setting, Setting], list[str]]]:
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

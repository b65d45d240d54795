"""An event, for which the last steps are written: what triggered it, and what rose first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from probe_recording.keeping.rise import Rise, SettingChange
from probe_recording.keeping.watched_values import SeriesKind
from probe_recording.values.leaves import encode_number

SCHEMA = 1
"""Version of the layout; it grows where a reader of an older one would read something wrong."""


class Cause(Enum):
    """The reason for which steps are written."""

    NOT_FINITE = "not_finite"
    OUTSIDE_BAND = "outside_band"
    EXCEPTION = "exception"
    SIGNAL = "signal"


class NoRise(Enum):
    """The reason why no quantity is named."""

    TOO_FEW_STEPS = "too_few_steps"
    ALL_INSIDE = "all_inside"


@dataclass(frozen=True, slots=True)
class Trigger:
    """The value, exception or signal that caused an event.

    Attributes:
        cause: The kind of the reason.
        step: The step in which it was noticed.
        series: The kind of the value; None for other reasons, and for a quantity that is not a series.
        number: Number of earlier values of this kind in the step.
        name: The class of the exception, the name of the signal, or the quantity that is not finite.
        value: The value; None for an exception or a signal.
        level: The usual value; None if it is not known.
        highest: The largest value inside the band; None if it is not known.
    """

    cause: Cause
    step: int
    series: SeriesKind | None = None
    number: int = 0
    name: str = ""
    value: float | None = None
    level: float | None = None
    highest: float | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A reason to write the last steps, and what is known then.

    Attributes:
        trigger: The reason.
        rise: The quantity that rose first; None if none did.
        no_rise: The reason why there is none; None if there is one.
        change: The latest large change of a setting of the optimizer before the step of ``rise``, which the
            settings of that step do not affect, or up to that of the trigger; None if there is none.
        steps: The numbers of the kept steps.
        observed_steps: Number of steps that were observed so far, kept or not.
        dropped_for_memory: Number of steps that were dropped so far to stay within the bytes.
    """

    trigger: Trigger
    rise: Rise | None
    no_rise: NoRise | None
    change: SettingChange | None
    steps: tuple[int, ...]
    observed_steps: int
    dropped_for_memory: int

    def plain(self) -> dict[str, Any]:
        """Return the event as JSON data; values that are not finite are texts."""
        trigger, rise = self.trigger, self.rise
        return {
            "cause": trigger.cause.value,
            "step": trigger.step,
            "series": None if trigger.series is None else trigger.series.value,
            "number": trigger.number,
            "name": trigger.name,
            "value": encode_number(trigger.value),
            "usual": encode_number(trigger.level),
            "highest": encode_number(trigger.highest),
            "first": None
            if rise is None
            else {
                "kind": rise.name.kind.value,
                "phase": rise.name.phase,
                "number": rise.name.number,
                "name": rise.name.name,
                "step": rise.step,
                "value": encode_number(rise.size),
                "usual": encode_number(rise.level),
                "highest": encode_number(rise.highest),
            },
            "no_first": None if self.no_rise is None else self.no_rise.value,
            "setting": None
            if self.change is None
            else {
                "name": self.change.name,
                "group": self.change.group,
                "step": self.change.step,
                "value": encode_number(self.change.value),
                "previous": encode_number(self.change.previous),
            },
            "steps": list(self.steps),
            "observed_steps": self.observed_steps,
            "dropped_for_memory": self.dropped_for_memory,
        }

"""The last steps of a process: they are judged one by one, and written if something happens."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from probe_recording.keeping.band import Band, load_band_rule
from probe_recording.keeping.event import SCHEMA, Cause, Event, NoRise, Trigger
from probe_recording.keeping.history import History
from probe_recording.keeping.options import KeepOptions
from probe_recording.keeping.readings import SCALED_PHASES, QuantityKind, QuantityReading
from probe_recording.keeping.rise import find_first_rise, find_setting_change
from probe_recording.keeping.step_memory import StepRing, StoredStep
from probe_recording.keeping.watched_values import SeriesKind, WatchedValue
from probe_recording.run_directory.directory import WATCH_FILE, StepDirectory

HISTORY_MEMORY_DIVISOR = 4
"""The history of quantities takes at most one part in this many of the memory."""

TRIGGER_KINDS = frozenset(
    {QuantityKind.OPTIMIZER_STATE, QuantityKind.PARAMETER, QuantityKind.LOSS, QuantityKind.GRADIENT}
)
"""Kinds of quantities that trigger an event if they become non-finite."""


class Keeper:
    """The kept steps of a process, their bands and their events.

    An event ends once as many steps as are kept passed without another trigger. Steps that follow a trigger
    within an event are not written.

    Args:
        options: The settings.

    Attributes:
        options: The settings.
        events: The events so far, without those beyond the limit.
        events_left_out: Number of events beyond the limit.
        step_count: Number of steps that were judged.
    """

    def __init__(self, options: KeepOptions) -> None:
        self.options = options
        self._rule = load_band_rule()
        history_bytes = options.memory // HISTORY_MEMORY_DIVISOR
        self._history = History(self._rule.memory_steps + options.keep_last, history_bytes)
        self._ring = StepRing(options.keep_last, options.memory - history_bytes)
        self._bands: dict[tuple[SeriesKind, int], Band] = {}
        self._quiet_steps_left = 0
        self.events: list[Event] = []
        self.events_left_out = 0
        self.step_count = 0

    def reserve(self, byte_count: int) -> None:
        """Leave a part of the memory to a snapshot, so that kept steps take less."""
        self._ring.limit(self.options.memory - self.options.memory // HISTORY_MEMORY_DIVISOR - byte_count)

    @property
    def byte_count(self) -> int:
        """Bytes of the kept steps and of the history."""
        return self._ring.byte_count + self._history.byte_count

    @property
    def steps(self) -> list[StoredStep]:
        """The kept steps, oldest first."""
        return self._ring.steps

    @property
    def left_out_quantities(self) -> int:
        """Number of quantities that are not observed, because the memory does not suffice."""
        return self._history.left_out

    @property
    def dropped_for_memory(self) -> int:
        """Number of steps that were dropped early to stay within the memory."""
        return self._ring.dropped_for_memory

    def end_step(
        self,
        number: int,
        label: str,
        files: dict[str, bytes],
        readings: Sequence[QuantityReading],
        values: Sequence[WatchedValue],
        *,
        is_scaled: bool,
    ) -> Trigger | None:
        """Add a step; return what triggers a new event, or None.

        Args:
            number: The number of the step.
            label: The name of the rank's directory.
            files: The content of its files.
            readings: Its quantities in execution order.
            values: Its losses and gradient norms.
            is_scaled: True if a gradient scaler scales its gradients, which may then overflow.
        """
        column, rows = self._history.add(readings)
        self._ring.add(StoredStep(number, label, files, column, rows))
        self.step_count += 1
        trigger = self._judge(number, values) or self._find_non_finite(number, column, readings, is_scaled)
        return self._begin_event(trigger)

    def begin_interrupt_event(self, trigger: Trigger) -> Trigger | None:
        """Begin an event of an exception or a signal; return None beyond the limit of events."""
        self._quiet_steps_left = 0
        return self._begin_event(trigger)

    def _begin_event(self, trigger: Trigger | None) -> Trigger | None:
        is_within = self._quiet_steps_left > 0
        if trigger is None:
            self._quiet_steps_left = max(0, self._quiet_steps_left - 1)
            return None
        self._quiet_steps_left = self.options.keep_last
        if is_within:
            return None
        if len(self.events) >= self.options.events:
            self.events_left_out += 1
            return None
        return trigger

    def _judge(self, number: int, values: Sequence[WatchedValue]) -> Trigger | None:
        """Add each value to its band; return the first that is outside or not finite."""
        first: Trigger | None = None
        for value in values:
            key = value.kind, value.number
            band = self._bands.get(key)
            if band is None:
                smallest = self._rule.smallest_rise[value.kind.value]
                band = self._bands[key] = Band(smallest, self._rule)
            limit = band.add(value.value)
            if first is not None:
                continue
            if not math.isfinite(value.value):
                first = Trigger(Cause.NOT_FINITE, number, value.kind, value.number, value=value.value)
            elif limit is not None:
                first = Trigger(Cause.OUTSIDE_BAND, number, value.kind, value.number, "", value.value,
                                limit.level, limit.highest)  # fmt: skip
        return first

    def _find_non_finite(
        self, number: int, column: int, readings: Sequence[QuantityReading], is_scaled: bool
    ) -> Trigger | None:
        """Return the first gradient, parameter or state that has become non-finite in this step."""
        infinite = [
            reading
            for reading in readings
            if reading.size == math.inf
            and reading.name.kind in TRIGGER_KINDS
            and reading.name.phase not in ("frozen", "buffers_before")
            and not (is_scaled and reading.name.phase in SCALED_PHASES)
        ]
        for reading in infinite:
            if not self._history.was_infinite(reading.name, column):
                return Trigger(Cause.NOT_FINITE, number, name=reading.name.name, value=reading.size)
        return None

    # -- events ----------------------------------------------------------------------------

    def explain(self, trigger: Trigger) -> Event:
        """Return the event of a trigger, with the quantity that rose first, and remember it."""
        steps = self._ring.steps
        rise = find_first_rise(steps, self._history, self._rule)
        reason = None
        if rise is None:
            needed = self._rule.level_steps + self._rule.least_steps
            reason = NoRise.TOO_FEW_STEPS if self.step_count <= needed else NoRise.ALL_INSIDE
        change = find_setting_change(steps, trigger.step if rise is None else rise.step - 1, self._rule.setting_factor)
        numbers = tuple(step.number for step in steps)
        event = Event(trigger, rise, reason, change, numbers, self.step_count, self._ring.dropped_for_memory)
        self.events.append(event)
        return event

    def write(
        self,
        event: Event,
        directory_of: Callable[[StoredStep], StepDirectory],
        unfinished: StoredStep | None = None,
    ) -> Path | None:
        """Write the kept steps that are not on disk yet, the newest first, and ``watch.json``.

        Args:
            event: The event.
            directory_of: A function that returns the directory of a step on disk.
            unfinished: The step that is being recorded, if it is to be written as well.

        Returns:
            The directory that holds ``watch.json``; None if there was nothing to write.

        Raises:
            UserError: A file cannot be written; the steps that were written before can be read.
        """
        steps = [*self._ring.steps, *(() if unfinished is None else (unfinished,))]
        place: Path | None = None
        for step in reversed(steps):
            is_last = place is None and (step is not unfinished or len(steps) == 1)
            if step.is_written and not is_last:
                continue
            directory = directory_of(step)
            for name, data in step.files.items():
                directory.write(name, data.decode())
            if is_last:
                directory.write(WATCH_FILE, self._watch_text(event))
                place = directory.path
            step.is_written = True
        return place

    def _watch_text(self, event: Event) -> str:
        """Return the content of ``watch.json``: the events whose last kept step is that of ``event``."""
        step_events = [each.plain() for each in self.events if each.steps[-1:] == event.steps[-1:]]
        return json.dumps({"schema": SCHEMA, "events": step_events}, indent=1) + "\n"

"""The sentences about an event: the only place that turns its data into English."""

from __future__ import annotations

import math
from collections.abc import Sequence

from probe_core.errors import format_count
from probe_recording.keeping.event import Cause, Event, NoRise, Trigger
from probe_recording.keeping.readings import CALL, QuantityKind, QuantityName
from probe_recording.keeping.rise import Rise, SettingChange
from probe_recording.keeping.watched_values import SeriesKind
from probe_recording.sessions.loss import format_steps

SERIES_TEXTS = {SeriesKind.LOSS: "loss", SeriesKind.GRADIENT_NORM: "gradient norm"}
QUANTITY_TEXTS = {
    QuantityKind.OPTIMIZER_STATE: "the optimizer state",
    QuantityKind.PARAMETER: "a parameter",
    QuantityKind.DATA: "the data",
    QuantityKind.ACTIVATION: "an activation",
    QuantityKind.LOSS: "the loss",
    QuantityKind.GRADIENT: "a gradient",
}
PHASES = {
    "buffers_before": "buffer",
    "frozen": "frozen parameter",
    "batch": "of the model",
    "forward": "of the model",
    "accumulated": "accumulated",
    "reduced": "reduced",
    "applied": "as the optimizer receives it",
}


def format_event(event: Event) -> str:
    """Return the line that is printed for an event: the trigger, and what rose first."""
    parts = [f"{format_trigger(event.trigger)}.", format_rise(event)]
    if event.change is not None:
        parts.append(format_change(event.change))
    return f"probe: {' '.join(parts)}"


def format_trigger(trigger: Trigger) -> str:
    """Return a clause on what triggered the event."""
    if trigger.cause is Cause.EXCEPTION:
        return f"{trigger.name} was raised in step {trigger.step}"
    if trigger.cause is Cause.SIGNAL:
        return f"signal {trigger.name} arrived in step {trigger.step}"
    subject = trigger.name
    if trigger.series is not None:
        subject = f"the {SERIES_TEXTS[trigger.series]}"
        if trigger.number:
            subject = f"{SERIES_TEXTS[trigger.series]} {trigger.number + 1}"
    if trigger.cause is Cause.NOT_FINITE:
        return f"{subject} is not finite in step {trigger.step}"
    usual = f", usually {_format_number(trigger.level)}" if trigger.level is not None else ""
    return f"{subject} rose to {_format_number(trigger.value)} in step {trigger.step}{usual}"


def format_rise(event: Event) -> str:
    """Return a sentence on the quantity that rose first."""
    rise = event.rise
    if rise is None:
        if event.no_rise is NoRise.TOO_FEW_STEPS:
            return f"What rose first is not known: {format_count(event.observed_steps, 'step')} do not suffice."
        return "No recorded quantity left its band in the kept steps."
    quantity = f"{QUANTITY_TEXTS[rise.name.kind]}, {format_quantity(rise.name)}"
    return f"Rose first: {quantity}, in step {rise.step} ({_format_values(rise)})."


def format_change(change: SettingChange) -> str:
    """Return a sentence on a setting of the optimizer that changed."""
    group = f" of group {change.group}" if change.group else ""
    return (
        f"The optimizer's {change.name}{group} changed from {_format_number(change.previous)} to "
        f"{_format_number(change.value)} in step {change.step}."
    )


def format_quantity(name: QuantityName) -> str:
    """Return the name of a quantity with the phase that it belongs to, where the name does not show it."""
    note = PHASES.get(name.phase, "")
    again = f"number {name.number + 1} in the step" if name.number and name.phase != CALL else ""
    notes = ", ".join(part for part in (note, again) if part)
    return f"{name.name} ({notes})" if notes else name.name


def format_written_steps(steps: Sequence[int], place: str) -> str:
    """Return the line about the steps that were written."""
    return f"probe: {format_steps(steps)} can be read in {place}."


def format_rerun(step: int, place: str) -> str:
    """Return the line about a step that ran again."""
    return f"probe: step {step} ran again; its tensors can be read in {place}."


def _format_values(rise: Rise) -> str:
    usual = f", usually {_format_number(rise.level)}" if rise.level is not None else ""
    size = "not finite" if math.isinf(rise.size) else f"root mean square {_format_number(rise.size)}"
    return size + usual


def _format_number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"

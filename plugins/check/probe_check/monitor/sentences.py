"""Sentences of the monitor."""

from __future__ import annotations

from pathlib import Path

from probe_check.monitor.alerts import Alert
from probe_core.errors import printable


def alert(event: Alert, tag: str) -> str:
    """Return the message of an event, which begins as that of msprobe."""
    place = (tag, event.operation)
    mean = "" if event.mean is None else f", history mean {event.mean:.6g}"
    return (
        f"Rule {event.rule.value} reports anomaly signal in {place} at step {event.step}, "
        f"current value {event.value:.6g}{mean}."
    )


def alert_line(event: Alert, tag: str) -> str:
    """Return the line that is printed for an event."""
    return f"probe: {printable(alert(event, tag))}"


def recording(first_step: int, last_step: int, path: Path) -> str:
    """Return the line about steps that are going to be recorded."""
    steps = f"step {first_step}" if first_step == last_step else f"steps {first_step} to {last_step}"
    return f"probe: an alert starts the recording of {steps} in {path}."


def not_recorded(reason: str) -> str:
    """Return the line about steps that are not recorded."""
    return f"probe: the steps after the alert are not recorded: {reason}"

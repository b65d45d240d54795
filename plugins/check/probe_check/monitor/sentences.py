"""Sentences of the monitor."""

from __future__ import annotations

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

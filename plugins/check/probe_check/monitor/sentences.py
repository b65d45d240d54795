"""Sentences of the monitor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from probe_check.monitor.alerts import Alert
from probe_check.monitor.run_reader import MonitoredRun, Series
from probe_check.monitor.verdict import FindingKind, MonitorFinding, MonitorVerdict
from probe_core.errors import format_count, make_printable

MAX_LISTED = 5
"""Number of values or files that are named."""


def format_alert(event: Alert, tag: str) -> str:
    """Return the message of an event, which begins as that of msprobe."""
    place = (tag, event.operation)
    mean = "" if event.mean is None else f", history mean {event.mean:.6g}"
    return (
        f"Rule {event.rule.value} reports anomaly signal in {place} at step {event.step}, "
        f"current value {event.value:.6g}{mean}."
    )


def format_alert_line(event: Alert, tag: str) -> str:
    """Return the line that is printed for an event."""
    return f"probe: {make_printable(format_alert(event, tag))}"


def format_more_alerts(count: int, step: int) -> str:
    """Return the line about alerts that are not printed."""
    return f"probe: {format_count(count, 'alert')} more in step {step}."


def format_end(step: int, reason: str) -> str:
    """Return the line about the end of the monitoring."""
    return f"probe: the monitoring ends in step {step}: {reason} The training goes on."


def format_recording_start(first_step: int, last_step: int, path: Path) -> str:
    """Return the line about steps that are going to be recorded."""
    steps = f"step {first_step}" if first_step == last_step else f"steps {first_step} to {last_step}"
    return f"probe: an alert starts the recording of {steps} in {path}."


def format_not_recorded(reason: str) -> str:
    """Return the line about steps that are not recorded."""
    return f"probe: the steps after the alert are not recorded: {reason}"


# -- the verdict on a training -----------------------------------------------------------------


def format_verdict(run: MonitoredRun, result: MonitorVerdict) -> str:
    """Return the verdict in one line."""
    main = result.main
    if main is not None:
        rank_text = f" on rank {main.series.rank}" if len(run.ranks) > 1 else ""
        return f"SUSPICIOUS: {format_value_name(main.series)} in step {main.step}{rank_text}: {describe_finding(main)}"
    scope = f"{format_count(len(run.series), 'value')} in {format_count(len(run.steps), 'step')}"
    if not result.judged_count:
        return (
            f"CANNOT TELL: {scope} are finite, but a band needs {result.least_steps} steps of at least one "
            "norm or maximum"
        )
    short = result.short_count
    rest = f"; {format_count(short, 'value')} with fewer than {result.least_steps} steps" if short else ""
    return f"NORMAL: {scope} are finite and within their bands{rest}"


def format_value_name(series: Series) -> str:
    """Return the name of a value with its task."""
    micro_step = f", micro-batch {series.micro_step}" if series.micro_step else ""
    model = f"{series.model}:" if series.model else ""
    return f"{series.task.value} of {make_printable(model + series.name)}{micro_step}"


def describe_finding(finding: MonitorFinding) -> str:
    """Return what is wrong with a value."""
    if finding.operation == "nans":
        return f"{format_count(int(finding.value), 'element')} are NaN"
    if finding.kind is FindingKind.NOT_FINITE:
        return f"{finding.operation} is {finding.value}"
    usual = f", usually {finding.level:.3g} and at most {finding.highest:.3g}"
    return f"{finding.operation} is {finding.value:.3g}{usual}"


def format_details(run: MonitoredRun, result: MonitorVerdict) -> Iterator[str]:
    """Yield lines about other findings, and about what was not read."""
    main = result.main
    if main is not None:
        same = [f for f in result.findings[1:] if f.step == main.step]
        for finding in same[:MAX_LISTED]:
            rank_text = f" on rank {finding.series.rank}" if len(run.ranks) > 1 else ""
            clause = f"{format_value_name(finding.series)}: {describe_finding(finding)}"
            yield f"Then in step {main.step}{rank_text}: {clause}."
        if len(same) > MAX_LISTED:
            yield f"Then in step {main.step}: {format_count(len(same) - MAX_LISTED, 'other value')}."
        later = len(result.findings) - 1 - len(same)
        if later:
            yield f"In later steps: {format_count(later, 'other value')}."
    if run.earlier_count:
        yield f"Not read: {format_count(run.earlier_count, 'earlier run')} of these ranks."
    for problem in run.problems[:MAX_LISTED]:
        yield f"Not read: {problem}"
    if len(run.problems) > MAX_LISTED:
        yield f"Not read: {format_count(len(run.problems) - MAX_LISTED, 'other file')}."

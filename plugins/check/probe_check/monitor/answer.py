"""The content of ``monitor_answer.json`` (docs/monitor.md#result-files)."""

from __future__ import annotations

from typing import Any

from probe_recording.keeping.band import load_band_rule
from probe_recording.values.leaves import encode_number

from probe_check.monitor import sentences
from probe_check.monitor.run_reader import MonitoredRun
from probe_check.monitor.verdict import MonitorFinding, MonitorVerdict

SCHEMA_VERSION = 1


def encode_answer(run: MonitoredRun, verdict: MonitorVerdict) -> dict[str, Any]:
    """Return the verdict, its numbers and its limits."""
    rule = load_band_rule()
    word = sentences.format_verdict(run, verdict).partition(":")[0]
    return {
        "schema": SCHEMA_VERSION,
        "verdict": word.replace(" ", "_"),
        "sentence": sentences.format_verdict(run, verdict),
        "finding": None if verdict.main is None else _encode_finding(verdict.main),
        "findings": [_encode_finding(finding) for finding in verdict.findings],
        "limits": {
            "least_steps": verdict.least_steps,
            "excess_factor": rule.excess_factor,
            "mad_factor": rule.mad_factor,
            "smallest_rise": {name: rule.smallest_rise[name] for name in ("gradient_norm", "size")},
        },
        "ranks": run.ranks,
        "steps": len(run.steps),
        "values": len(run.series),
        "judged_values": verdict.judged_count,
        "short_values": verdict.short_count,
        "not_read": list(run.problems),
    }


def _encode_finding(finding: MonitorFinding) -> dict[str, Any]:
    series = finding.series
    return {
        "kind": finding.kind.value,
        "rank": series.rank,
        "step": finding.step,
        "task": series.task.value,
        "model": series.model,
        "name": series.name,
        "micro_step": series.micro_step,
        "operation": finding.operation,
        "value": encode_number(finding.value),
        "usual": encode_number(finding.level),
        "highest": encode_number(finding.highest),
    }

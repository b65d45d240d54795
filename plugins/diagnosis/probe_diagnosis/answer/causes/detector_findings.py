"""Findings of the detectors that plugins provide (docs/detector-plugin.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from probe_core.model import Reason
from probe_core.model.answers import Finding
from probe_core.plugins.blame import PluginError, blame_plugin
from probe_core.plugins.manager import Manager
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.specs import DetectorSpec
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.timeline import Detection, Timeline

DETECTOR_KIND = "detectors"
"""Name of this kind of contribution in the plugin manager."""

DETECTOR_CODE = "detector"
"""Reason code of a cause that a detector reports."""


def run_detectors(
    manager: Manager, facts: RankFacts, runs: ComparedRuns, step: str, problems: list[str]
) -> list[Finding]:
    """Return the findings of all detectors in the order of the calls, and only the first finding on each call.

    Args:
        manager: The plugins.
        facts: The facts about the rank.
        runs: Both runs.
        step: The directory of the step; empty if there is only one.
        problems: List to which a sentence on each detector that fails is appended.
    """
    specs = sorted(manager.specs(DETECTOR_KIND, DetectorSpec), key=lambda spec: spec.order)
    if not specs:
        return []
    timeline = Timeline(facts, *runs.both, step)
    findings_by_op: dict[str, Finding] = {}
    for spec in specs:
        try:
            with blame_plugin(spec.title, spec.origin):
                detections = [_check_detection(detection) for detection in spec.make().detect(timeline)]
        except PluginError as error:
            problems.append(f"{error.what} {error.fix}")
            continue
        for finding in _create_findings(spec.name, detections, facts, runs):
            findings_by_op.setdefault(finding.op, finding)
    return sorted(findings_by_op.values(), key=lambda finding: timeline.get_position(finding.op))


def insert_detector_findings(
    findings: Sequence[Finding], causes: Sequence[Finding], facts: RankFacts, runs: ComparedRuns
) -> list[Finding]:
    """Return the causes together with the findings of detectors.

    Findings on calls before the first cause, or on its call, precede the causes. All other findings follow them. A
    finding replaces a cause on the same call.
    """
    if not findings or not causes:
        return [*findings, *causes]
    detected_ops = {finding.op for finding in findings}
    remaining_causes = [cause for cause in causes if cause.op not in detected_ops]
    timeline = Timeline(facts, *runs.both)
    first = timeline.get_position(causes[0].op)
    leading = [finding for finding in findings if first < 0 or timeline.get_position(finding.op) <= first]
    return [*leading, *remaining_causes, *(finding for finding in findings if finding not in leading)]


def _check_detection(detection: object) -> Detection:
    if not isinstance(detection, Detection):
        raise TypeError(f"detect must yield Detection, not {type(detection).__name__}")
    return detection


def _create_findings(
    name: str, detections: Sequence[Detection], facts: RankFacts, runs: ComparedRuns
) -> Iterator[Finding]:
    for detection in detections:
        number = facts.ops.numbers_by_key.get(detection.op)
        modules = facts.ops.modules[number] if number is not None else runs.list_modules(detection.op)
        yield Finding(
            detection.op, detection.value, Reason(DETECTOR_CODE, detection.statement),
            {"detector": name, **detection.evidence}, "", modules,
            runs.find_line(detection.op), rank=facts.rank,
        )  # fmt: skip

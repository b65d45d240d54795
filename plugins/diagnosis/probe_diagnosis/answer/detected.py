"""Findings of the detectors that plugins provide (docs/detector-plugin.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from probe_core.model import Reason
from probe_core.model.answers import Finding
from probe_core.plugins.blame import PluginError, blamed
from probe_core.plugins.manager import Manager
from probe_diagnosis.answer.runs import Runs
from probe_diagnosis.specs import DetectorSpec
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.timeline import Detection, Timeline

KIND = "detectors"
"""The kind of contributions of plugins."""

CODE = "detector"
"""Kind of a cause that a detector states."""


def detect(manager: Manager, facts: RankFacts, runs: Runs, step: str, problems: list[str]) -> list[Finding]:
    """Return what the detectors found, in the order of the calls; the first statement on each call.

    Args:
        manager: The plugins.
        facts: The facts about the rank.
        runs: Both runs.
        step: The directory of the step; empty if there is only one.
        problems: Sentences on detectors that fail are appended to it.
    """
    specs = sorted(manager.specs(KIND, DetectorSpec), key=lambda spec: spec.order)
    if not specs:
        return []
    timeline = Timeline(facts, *runs.both, step)
    found: dict[str, Finding] = {}
    for spec in specs:
        try:
            with blamed(spec.title, spec.origin):
                detections = [_checked(one) for one in spec.make().detect(timeline)]
        except PluginError as error:
            problems.append(f"{error.what} {error.fix}")
            continue
        for finding in _findings(spec.name, detections, facts, runs):
            found.setdefault(finding.op, finding)
    return sorted(found.values(), key=lambda finding: timeline.place(finding.op))


def in_order(
    detected: Sequence[Finding], causes: Sequence[Finding], facts: RankFacts, runs: Runs
) -> list[Finding]:
    """Return the causes with what detectors found: before the first cause unless its call comes first.

    A statement of a detector replaces a cause on the same call.
    """
    if not detected:
        return [*causes]
    named = {finding.op for finding in detected}
    others = [cause for cause in causes if cause.op not in named]
    timeline = Timeline(facts, *runs.both)
    first = timeline.place(causes[0].op) if causes else -1
    before = [one for one in detected if first < 0 or timeline.place(one.op) <= first]
    return [*before, *others, *(one for one in detected if one not in before)]


def _checked(detection: object) -> Detection:
    if not isinstance(detection, Detection):
        raise TypeError(f"detect must yield Detection, not {type(detection).__name__}")
    return detection


def _findings(name: str, detections: Sequence[Detection], facts: RankFacts, runs: Runs) -> Iterator[Finding]:
    for one in detections:
        number = facts.ops.numbers.get(one.op)
        modules = facts.ops.within[number] if number is not None else runs.modules(one.op)
        yield Finding(
            one.op, one.value, Reason(CODE, one.statement), {"detector": name, **one.evidence}, "", modules,
            runs.where(one.op), rank=facts.rank,
        )  # fmt: skip

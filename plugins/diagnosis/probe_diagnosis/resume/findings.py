"""Findings on what a resumed run did not restore."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probe_core.model import Reason
from probe_core.model.answers import Finding
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.phases.phase_differences import format_setting
from probe_diagnosis.phases.phases_file import PhaseValue, Setting
from probe_diagnosis.resume.restored import CheckpointPart, Omission, RestoreFailure, find_restore_failures

OP_PREFIX = "resume."
"""Beginning of the names of causes that were not restored, in place of the key of a call."""

PART_SUBJECTS = {
    CheckpointPart.PARAMETERS: "parameters were",
    CheckpointPart.BUFFERS: "buffers were",
    CheckpointPart.STATE: "the state of {owner} was",
    CheckpointPart.SETTINGS: "the setting {name} of {owner} was",
    CheckpointPart.SCHEDULER: "the state of the scheduler {owner} was",
    CheckpointPart.SCALE: "the scale of the {owner} was",
    CheckpointPart.DATA: "the position in the data was",
    CheckpointPart.RANDOM: "the random state of {name} was",
    CheckpointPart.BATCH: "the batch ({name} of the model) was",
}
"""Subjects of sentences on parts that were not restored."""


def create_resume_findings(target: Path, golden: Path, rank: int) -> list[Finding]:
    """Return the findings on what the target did not restore, by its first step; empty for nothing.

    Args:
        target: The directory of the first step and rank of the resumed run.
        golden: That of the step of the uninterrupted run which it repeats.
        rank: The number of the rank.
    """
    failures_by_part: dict[CheckpointPart, list[RestoreFailure]] = {}
    for failure in find_restore_failures(target, golden):
        failures_by_part.setdefault(failure.part, []).append(failure)
    return [_create_finding(each, rank) for each in failures_by_part.values()]


def _create_finding(group: Sequence[RestoreFailure], rank: int) -> Finding:
    first = group[0]
    subject = PART_SUBJECTS[first.part].format(owner=first.owner or "the optimizer", name=first.name)
    details = "; ".join(filter(None, map(_describe_failure, group)))
    statement = Statement(f"{subject} not restored", "", details)
    evidence: dict[str, float | int | str] = {"value": first.name, "omission": first.omission.value}
    brief = f"{statement.brief} ({_describe_failure(first)})" if details else statement.brief
    return Finding(
        f"{OP_PREFIX}{first.part.value}", "", Reason(CauseKind.NOT_RESTORED.value, statement.text), evidence,
        where=first.where, rank=rank, brief=brief,
    )  # fmt: skip


def _describe_failure(failure: RestoreFailure) -> str:
    """Return the value that shows that a part was not restored, and the number of the others.

    It is empty for a state of which only hashes are known.
    """
    more = f"; {failure.count - 1} more" if failure.count > 1 and failure.part is not CheckpointPart.SETTINGS else ""
    if failure.omission is Omission.MISSING:
        return f"{failure.name} is missing{more}"
    if failure.omission is Omission.ZERO:
        return f"{failure.name} is zero{more}"
    if failure.target is None and failure.golden is None:
        return ""
    return f"{failure.name}: {_format_values(failure.target, failure.golden)}{more}"


def _format_values(target: Setting | PhaseValue, golden: Setting | PhaseValue) -> str:
    if isinstance(target, PhaseValue) and isinstance(golden, PhaseValue):
        statistics = zip(("max", "min", "mean", "norm"), target.statistics, golden.statistics)
        apart = {what: (a, b) for what, a, b in statistics if a != b}
        if not target.shape:
            return f"{target.statistics[0]:.6g} against {golden.statistics[0]:.6g}"
        what, (first, second) = ("norm", apart["norm"]) if "norm" in apart else next(iter(apart.items()))
        return f"{what} {first:.6g} against {second:.6g}"
    return f"{format_setting(_describe_setting(target))} against {format_setting(_describe_setting(golden))}"


def _describe_setting(value: Setting | PhaseValue) -> Setting:
    return None if isinstance(value, PhaseValue) else value

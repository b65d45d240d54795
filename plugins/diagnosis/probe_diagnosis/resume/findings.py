"""Findings on what a resumed run did not restore."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probe_core.model import Reason
from probe_core.model.answers import Finding
from probe_diagnosis.difference.reasons import Cause
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.phases.ladder_file import Measured, Setting
from probe_diagnosis.phases.ladder_steps import said
from probe_diagnosis.resume.restored import CheckpointPart, Omission, RestoreFailure, not_restored

OP = "resume."
"""Beginning of the names of causes that were not restored, in place of the key of a call."""

SUBJECTS = {
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


def resume_findings(target: Path, golden: Path, rank: int) -> list[Finding]:
    """Return the findings on what the target did not restore, by its first step; empty for nothing.

    Args:
        target: The directory of the first step and rank of the resumed run.
        golden: That of the step of the uninterrupted run which it repeats.
        rank: The number of the rank.
    """
    found: dict[CheckpointPart, list[RestoreFailure]] = {}
    for one in not_restored(target, golden):
        found.setdefault(one.part, []).append(one)
    return [_finding(each, rank) for each in found.values()]


def _finding(group: Sequence[RestoreFailure], rank: int) -> Finding:
    first = group[0]
    subject = SUBJECTS[first.part].format(owner=first.owner or "the optimizer", name=first.name)
    details = "; ".join(filter(None, map(_detail, group)))
    statement = Statement(f"{subject} not restored", "", details)
    evidence: dict[str, float | int | str] = {"value": first.name, "omission": first.omission.value}
    brief = f"{statement.brief} ({_detail(first)})" if details else statement.brief
    return Finding(
        f"{OP}{first.part.value}", "", Reason(Cause.NOT_RESTORED.value, statement.text), evidence,
        where=first.where, rank=rank, brief=brief,
    )  # fmt: skip


def _detail(one: RestoreFailure) -> str:
    """Return the value that shows that a part was not restored, and the number of the others.

    It is empty for a state of which only hashes are known.
    """
    more = f"; {one.count - 1} more" if one.count > 1 and one.part is not CheckpointPart.SETTINGS else ""
    if one.omission is Omission.MISSING:
        return f"{one.name} is missing{more}"
    if one.omission is Omission.ZERO:
        return f"{one.name} is zero{more}"
    if one.target is None and one.golden is None:
        return ""
    return f"{one.name}: {_shown(one.target, one.golden)}{more}"


def _shown(target: Setting | Measured, golden: Setting | Measured) -> str:
    if isinstance(target, Measured) and isinstance(golden, Measured):
        statistics = zip(("max", "min", "mean", "norm"), target.statistics, golden.statistics)
        apart = {what: (a, b) for what, a, b in statistics if a != b}
        if not target.shape:
            return f"{target.statistics[0]:.6g} against {golden.statistics[0]:.6g}"
        what, (first, second) = ("norm", apart["norm"]) if "norm" in apart else next(iter(apart.items()))
        return f"{what} {first:.6g} against {second:.6g}"
    return f"{said(_setting(target))} against {said(_setting(golden))}"


def _setting(value: Setting | Measured) -> Setting:
    return None if isinstance(value, Measured) else value

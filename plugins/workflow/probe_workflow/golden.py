"""A golden recording, and the settings that the script is recorded with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from probe_ranks.api import find_ranks
from probe_recording.framework import RecordedSettings, read_settings

from probe_core.errors import UserError
from probe_core.plugins.manager import Manager

_STEP = re.compile(r"step(\d+)(?:/|$)")
COMPARED_TASKS = ("statistics", "tensor")


@dataclass(frozen=True, slots=True)
class GoldenRun:
    """A golden recording.

    Attributes:
        path: The directory that holds its steps.
        settings: The settings of the recording.
        steps: The numbers of the recorded steps.
    """

    path: Path
    settings: RecordedSettings
    steps: tuple[int, ...]


def read_golden(path: Path, manager: Manager) -> GoldenRun:
    """Return the golden recording in a directory.

    Raises:
        UserError: The directory holds no steps, or a recording that ``probe run`` cannot repeat.
    """
    files = find_ranks(path, formats=manager.record_files())
    steps = sorted({int(match[1]) for name in files if (match := _STEP.match(name))})
    records = [file for ranks in files.values() for file in ranks.values()]
    if not steps or not records:
        raise UserError(
            f"{path} does not hold the steps of a recording.",
            "Give the directory that probe run -o wrote, which holds step0 or other steps.",
        )
    settings = read_settings(records[0])
    if settings.task not in COMPARED_TASKS:
        raise UserError(
            f'{path} was recorded with task "{settings.task}", which holds nothing to compare.',
            "Record the golden with one of these tasks:",
            COMPARED_TASKS,
        )
    return GoldenRun(path, settings, tuple(steps))

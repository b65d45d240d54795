"""The settings of a golden recording that the script is recorded with."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from probe_core.errors import UserError
from probe_core.flow.opening import open_run
from probe_core.plugins.manager import Manager
from probe_core.store.layout import find_ranks

_STEP = re.compile(r"step(\d+)$")


@dataclass(frozen=True, slots=True)
class GoldenRun:
    """A golden recording.

    Attributes:
        path: The directory that holds its steps.
        task: The kind of recorded data.
        level: The level of the recorded calls.
        steps: The numbers of the recorded steps.
    """

    path: Path
    task: str
    level: str
    steps: tuple[int, ...]


def read_golden(path: Path, manager: Manager) -> GoldenRun:
    """Return the golden recording in a directory.

    Raises:
        UserError: The directory holds no steps, or a recording that ``probe run`` cannot repeat.
    """
    files = find_ranks(path, formats=manager.record_files())
    steps = [int(match[1]) for name in files if (match := _STEP.match(name))]
    records = [file for ranks in files.values() for file in ranks.values()]
    if not steps or not records:
        raise UserError(
            f"{path} does not hold the steps of a recording.",
            "Give the directory that probe run -o wrote, which holds step0 or other steps.",
        )
    with closing(open_run(manager, records[0])) as run:
        header = run.header
    if not header.is_ours:
        raise UserError(
            f"{path} was not recorded by probe, so its settings are not known.",
            "Record the golden with probe run.",
        )
    return GoldenRun(path, header.task, header.level, tuple(sorted(steps)))

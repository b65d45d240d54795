"""Check of the communication calls of a run on disk, and its result file (docs/collectives.md#files)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from probe_ranks.api import find_ranks
from probe_reporters.api import Reporter, write_table

from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, remove_leftovers, write_atomically
from probe_core.flow.opening import open_run
from probe_core.model import Mode
from probe_core.plugins.blame import blame_plugin
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import ReporterSpec
from probe_diagnosis.collectives.check import CommunicationCheck, check_communication

HEADERS = ("Step", "Rank", "Call", "Should have received", "Received")
"""Columns of the result file."""


@dataclass(frozen=True, slots=True)
class StepCheck:
    """Result of checking one step.

    Attributes:
        step: The directory of the step below the run; empty for the run itself.
        ranks: The ranks that were checked.
        check: The result.
    """

    step: str
    ranks: tuple[int, ...]
    check: CommunicationCheck


def check_run(path: Path, manager: Manager, steps: Collection[int] = ()) -> list[StepCheck]:
    """Check the communication calls of all ranks of a run, step by step.

    Args:
        path: The directory of the run, or of one of its steps.
        manager: The plugins, among them the readers of runs.
        steps: Numbers of the steps to check; all if empty.

    Raises:
        UserError: The path is not a run, a rank cannot be read, or a rank has no tensors.
    """
    checks: list[StepCheck] = []
    for step, files in find_ranks(path, steps, manager.record_files()).items():
        with ExitStack() as stack:
            runs = {}
            for rank, file in files.items():
                runs[rank] = open_run(manager, file)
                stack.callback(runs[rank].close)
                if runs[rank].mode is not Mode.TENSOR:
                    raise UserError(
                        f"{file} holds no tensors, so its communication calls cannot be checked.",
                        'Record again with task tensor; "list": ["Distributed"] keeps the files small.',
                    )
            checks.append(StepCheck(step, tuple(runs), check_communication(runs)))
    return checks


def write_check(checks: Sequence[StepCheck], output: Path, time_stamp: str, spec: ReporterSpec) -> Path:
    """Write the calls that delivered wrong values to ``collectives_check_{time_stamp}``, one row for each.

    Args:
        checks: The results of all steps.
        output: The output directory, which is made if it does not exist.
        time_stamp: Time of the check, part of the file's name.
        spec: The reporter that writes the file.

    Returns:
        The path of the file.

    Raises:
        UserError: The output directory cannot be written to.
    """
    make_directory(output)
    remove_leftovers(output)
    rows = [(result.step, breach) for result in checks for breach in result.check.breaches]
    reporter: Reporter = spec.make()
    path = output / f"collectives_check_{time_stamp}{spec.suffix}"
    with write_atomically(path, "The result") as temporary, blame_plugin(spec.title, spec.origin, OSError):
        write_table(
            reporter,
            temporary,
            HEADERS,
            [[step, breach.rank, breach.op, breach.law, breach.evidence] for step, breach in rows],
        )
    return path

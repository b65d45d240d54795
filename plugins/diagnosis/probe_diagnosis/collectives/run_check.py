"""Check the communication of a run on disk, and write what was found."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.atomic import AtomicFile, make_directory, not_written, remove_leftovers
from probe_core.flow.opening import open_run
from probe_core.flow.writing import write_table
from probe_core.model import Mode
from probe_core.plugins.blame import PluginError, blamed
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import Reporter
from probe_core.plugins.specs import ReporterSpec
from probe_core.store.layout import ranks_of
from probe_diagnosis.collectives.check import Check, check

HEADERS = ("Step", "Rank", "Call", "Should have received", "Received")


@dataclass(frozen=True, slots=True)
class StepCheck:
    """What came of checking one step: its place below the path that was given, its ranks, the check."""

    step: str
    ranks: tuple[int, ...]
    check: Check


def check_run(path: Path, manager: Manager, steps: Collection[int] = ()) -> list[StepCheck]:
    """Check the communication calls of all ranks of a run, step by step.

    Raises:
        UserError: A path that is no run, a rank that cannot be read, or a run without tensors.
    """
    found: list[StepCheck] = []
    for step, files in ranks_of(path, steps, manager.record_files()).items():
        with ExitStack() as stack:
            runs = {}
            for rank, file in files.items():
                runs[rank] = open_run(manager, file)
                stack.callback(runs[rank].close)
                if runs[rank].mode is not Mode.TENSOR:
                    raise UserError(
                        f"{file} holds no tensors, which the laws of communication are checked on.",
                        "Record with task tensor; the list of the configuration may name Distributed alone.",
                    )
            found.append(StepCheck(step, tuple(runs), check(runs)))
    return found


def write_check(checks: Sequence[StepCheck], output: Path, time_stamp: str, spec: ReporterSpec) -> Path:
    """Write the calls that break their law, a row each, to ``collectives_check_{time_stamp}``.

    Raises:
        UserError: The output directory takes no file.
    """
    make_directory(output)
    remove_leftovers(output)
    rows = [(one.step, breach) for one in checks for breach in one.check.breaches]
    reporter: Reporter = spec.make()
    file = AtomicFile(output / f"collectives_check_{time_stamp}{spec.suffix}")
    try:
        with blamed(spec.title, spec.origin, OSError):
            write_table(
                reporter,
                file.temporary,
                HEADERS,
                [[step, breach.rank, breach.op, breach.law, breach.evidence] for step, breach in rows],
            )
    except PluginError:
        file.discard()
        raise
    except OSError as error:
        file.discard()
        raise not_written("The result", output, error) from None
    return file.commit()

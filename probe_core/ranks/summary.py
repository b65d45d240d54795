"""The summary table over all ranks: counts and the first suspect of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from probe_core.files.atomic import make_directory, writing
from probe_core.flow.writing import write_table
from probe_core.model import Cell, Level
from probe_core.model.plan import Plan
from probe_core.plugins.blame import PluginError, blamed
from probe_core.plugins.manager import Manager, warn
from probe_core.plugins.specs import ReporterSpec
from probe_core.ranks.ranks import Finished

if TYPE_CHECKING:
    from probe_core.plugins.protocols import Reporter

HEADERS = (
    "Step", "Rank", "File", "Mode", "Rows", "Ops", "Differ", "To check", "Agree", "Not measured", "Matched",
    "Only NPU", "Only Bench", "First suspect", "Why", "Module", "Line of code", "Error",
)  # fmt: skip
LEVELS = (Level.ERROR, Level.WARNING, Level.PASS, Level.SKIP)


def write_summary(plan: Plan, manager: Manager, finished: Sequence[Finished]) -> list[Path]:
    """Write ``compare_summary_{time stamp}`` in the plan's formats, with a row per rank; return the files.

    Raises:
        UserError: The output directory is not writable.
    """
    make_directory(plan.output)
    files: list[Path] = []
    for name in plan.formats:
        spec = manager.find("reporters", name, ReporterSpec)
        path = plan.output / f"compare_summary_{plan.time_stamp}{spec.suffix}"
        try:
            reporter: Reporter = spec.make()
            with writing(path, "The summary") as temporary, blamed(spec.title, spec.origin, OSError):
                write_table(reporter, temporary, HEADERS, [cells(comparison) for comparison in finished])
        except PluginError as error:
            warn(error, "Its summary is not written.")
        else:
            files.append(path)
    return files


def cells(finished: Finished) -> list[Cell]:
    """Return the cells of one rank's row."""
    pair, report = finished.pair, finished.report
    place: list[Cell] = [pair.part, pair.rank, pair.target.name]
    if report is None:
        assert finished.error is not None
        return [*place, *[""] * (len(HEADERS) - len(place) - 1), finished.error.what]
    counts = report.counts
    suspect = report.suspects[0] if report.suspects else None
    where = [suspect.row, suspect.why, suspect.module, suspect.where] if suspect else [""] * 4
    unreadable = (
        [f"{report.unreadable_count} tensor file(s) could not be read"] if report.unreadable_count else []
    )
    problem = "; ".join([*unreadable, *report.problems])
    return [
        *place,
        report.mode.value,
        counts.rows,
        report.op_count,
        *(counts.levels[level] for level in LEVELS),
        counts.matched,
        counts.target_only,
        counts.golden_only,
        *where,
        problem,
    ]

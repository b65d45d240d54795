"""Reading of the csv files of a monitored training, of one or all ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from probe_check.monitor.csv_file import MonitorTable, parse_first_step, parse_task, read_table
from probe_check.monitor.directories import RunDirectory, find_run_directories
from probe_check.monitor.tasks import Task
from probe_core.errors import UserError

TASKS_BY_NAME = {task.value: task for task in Task}


@dataclass(slots=True, eq=False)
class Series:
    """The figures of one value in all observed steps.

    Attributes:
        rank: The rank.
        task: The kind of the value.
        model: The number of the model.
        name: The name of the value.
        micro_step: The micro-batch; None for a value of the whole step.
        order: The position among the values of the task and rank, in the order of the files.
        steps: The steps.
        figures: The results of each operation, one per step.
        is_tensor: True for each step in which the value was a tensor.
    """

    rank: int
    task: Task
    model: int
    name: str
    micro_step: int | None
    order: int
    steps: list[int] = field(default_factory=list)
    figures: dict[str, list[float]] = field(default_factory=dict)
    is_tensor: list[bool] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MonitoredRun:
    """The figures of a monitored training.

    Attributes:
        path: The directory that was given.
        directories: The directory of each rank.
        earlier_count: Number of directories of earlier runs, which were not read.
        series: The figures.
        problems: Sentences about files that could not be read.
    """

    path: Path
    directories: tuple[RunDirectory, ...]
    earlier_count: int
    series: tuple[Series, ...]
    problems: tuple[str, ...]

    @property
    def ranks(self) -> list[int]:
        """The ranks, ascending."""
        return sorted({directory.rank for directory in self.directories})

    @property
    def steps(self) -> list[int]:
        """All observed steps, ascending."""
        return sorted({step for series in self.series for step in series.steps})


def read_run(path: Path) -> MonitoredRun:
    """Read the latest directory of each rank.

    Args:
        path: The output directory of the monitor, or the directory of one rank.

    Raises:
        UserError: There are no csv files of the monitor.
    """
    if not path.is_dir():
        raise UserError(f'"{path}" is no directory.', "Give the output directory of the monitor.")
    try:
        directories = sorted(find_run_directories(path), key=lambda run: (run.path.stat().st_mtime, run.path.name))
    except OSError as error:
        raise UserError(
            f'"{path}" cannot be read: {error.strerror}.', "Check the directory and its permissions."
        ) from None
    latest = {run.rank: run for run in directories}
    latest_directories = [latest[rank] for rank in sorted(latest)]
    problems: list[str] = []
    series = [each for run in latest_directories for each in _read_rank(run, problems)]
    if not series:
        raise UserError(
            f'"{path}" has no csv files of the monitor.' + (f" {problems[0]}" if problems else ""),
            'Give the directory that MONITOR_OUTPUT_DIR names; "format" must be "csv".',
        )
    return MonitoredRun(
        path, tuple(latest_directories), len(directories) - len(latest_directories), tuple(series), tuple(problems)
    )


def _read_rank(run: RunDirectory, problems: list[str]) -> list[Series]:
    def read(path: Path) -> MonitorTable | None:
        try:
            return read_table(path)
        except UserError as error:
            problems.append(error.what)
            return None

    return read_series(run, list(run.path.glob("*.csv")), read)


def read_series(run: RunDirectory, files: Iterable[Path], read: Callable[[Path], MonitorTable | None]) -> list[Series]:
    """Return the figures in the files of one rank.

    Args:
        run: The directory of the rank.
        files: The files; those that are not of the monitor are left out.
        read: A function that reads a file; None for one that cannot be read.
    """
    series: dict[tuple[object, ...], Series] = {}
    for file in sorted(files, key=lambda file: (parse_task(file.name) or "", parse_first_step(file.name))):
        task = TASKS_BY_NAME.get(parse_task(file.name) or "")
        table = None if task is None else read(file)
        if task is not None and table is not None:
            _add_table(series, run.rank, task, table)
    return list(series.values())


def _add_table(series: dict[tuple[object, ...], Series], rank: int, task: Task, table: MonitorTable) -> None:
    places = {title: place for place, title in enumerate(table.columns)}
    operations = [(title, places[title]) for title in table.list_operations()]
    shape = places.get("shape")
    for row in table.rows:
        try:
            model, step = int(row[places["vpp_stage"]]), int(row[places["step"]])
            micro_step = int(row[places["micro_step"]]) if "micro_step" in places else None
            numbers = [float(row[place]) for _, place in operations]
        except ValueError:
            continue  # a damaged row
        name = row[places["name"]]
        key = task, model, name, micro_step
        if key not in series:
            series[key] = Series(rank, task, model, name, micro_step, len(series))
        _add_row(series[key], step, dict(zip((title for title, _ in operations), numbers)))
        series[key].is_tensor.append(shape is None or row[shape] != "nan")


def _add_row(series: Series, step: int, numbers: dict[str, float]) -> None:
    count = len(series.steps)
    series.steps.append(step)
    for operation, number in numbers.items():
        values = series.figures.setdefault(operation, [math.nan] * count)
        values.append(number)
    for values in series.figures.values():
        if len(values) == count:
            values.append(math.nan)


def select_magnitude(series: Series) -> tuple[str, Sequence[float]] | None:
    """Return the operation that shows how large a value is, and its results; None if there is none.

    It is the norm, or else the larger of the absolute values of minimum and maximum.
    """
    figures = series.figures
    for operation in ("norm", "kernel_norm"):
        if operation in figures:
            return operation, figures[operation]
    if "min" in figures and "max" in figures:
        return "max", [max(abs(low), abs(high)) for low, high in zip(figures["min"], figures["max"])]
    return ("max", [abs(high) for high in figures["max"]]) if "max" in figures else None

"""Conversion of csv files of the monitor to a database of SQLite, or to events of TensorBoard."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

from probe_check.monitor.csv_file import parse_task, read_table
from probe_check.monitor.directories import RunDirectory, choose_run_directory, find_run_directories, parse_time
from probe_check.monitor.output import create_summary_writer
from probe_check.monitor.run_reader import Series, read_series
from probe_check.monitor.tasks import Task
from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, write_atomically

DATABASE_FILE = "monitor_metrics.db"
DEFAULT_STEP_PARTITION = 500
MAX_STEP_PARTITION = 10_000_000
_SCHEMA = """
CREATE TABLE monitoring_targets (target_id INTEGER PRIMARY KEY AUTOINCREMENT, target_name TEXT NOT NULL,
    vpp_stage INTEGER NOT NULL, micro_step INTEGER NOT NULL DEFAULT 0,
    UNIQUE(target_name, vpp_stage, micro_step));
CREATE TABLE monitoring_metrics (metric_id INTEGER PRIMARY KEY AUTOINCREMENT,
    metric_name TEXT UNIQUE NOT NULL);
CREATE TABLE metric_stats (metric_id INTEGER NOT NULL, stat_name TEXT NOT NULL,
    PRIMARY KEY (metric_id, stat_name)) WITHOUT ROWID;
CREATE TABLE global_stats (stat_name TEXT PRIMARY KEY, stat_value INTEGER NOT NULL) WITHOUT ROWID;
"""


def csv2tensorboard_by_step(
    monitor_path: str | os.PathLike[str],
    time_start: str | None = None,
    time_end: str | None = None,
    process_num: int = 1,
    data_type_list: Sequence[str] | None = None,
    output_dirpath: str | os.PathLike[str] | None = None,
) -> Path:
    """Write csv files as events of TensorBoard, and return the directory.

    Args:
        monitor_path: The output directory of the monitor.
        time_start: The first time stamp of runs, such as ``Dec03_21-34-40``; None for no limit.
        time_end: The last time stamp.
        process_num: Ignored; one process is used.
        data_type_list: The first parts of the names of the files; None for all.
        output_dirpath: The directory of the events; by default one in ``monitor_path`` with a time stamp.

    Raises:
        UserError: There are no such files, or TensorBoard is not installed.
    """
    base = Path(monitor_path)
    output = _create_output_directory(base, output_dirpath, "csv2tensorboard_by_step")
    for run, series in _read_runs(base, time_start, time_end, data_type_list):
        writers = {}
        for each in series:
            place = output / f"rank{run.rank}" / each.task.value
            if place not in writers:
                make_directory(place)
                writers[place] = create_summary_writer(place)
            micro_step = "" if each.micro_step is None else f":micro{each.micro_step}"
            for operation, values in each.figures.items():
                for step, value in zip(each.steps, values):
                    writers[place].add_scalar(f"vp{each.model}:{each.name}{micro_step}/{operation}", value, step)
        for writer in writers.values():
            writer.close()
    return output


def csv2db(
    monitor_path: str | os.PathLike[str],
    time_start: str | None = None,
    time_end: str | None = None,
    data_type_list: Sequence[str] | None = None,
    step_partition: int = DEFAULT_STEP_PARTITION,
    output_dirpath: str | os.PathLike[str] | None = None,
) -> Path:
    """Write csv files to ``monitor_metrics.db``, and return the path.

    Args:
        monitor_path: The output directory of the monitor.
        time_start: The first time stamp of runs, such as ``Dec03_21-34-40``; None for no limit.
        time_end: The last time stamp.
        data_type_list: The first parts of the names of the files; None for all.
        step_partition: Number of steps of a table.
        output_dirpath: The directory of the file; by default one in ``monitor_path`` with a time stamp.

    Raises:
        UserError: There are no such files, or the database cannot be written.
    """
    if not 1 <= step_partition <= MAX_STEP_PARTITION:
        raise UserError(
            f"step_partition must be a whole number from 1 to {MAX_STEP_PARTITION}.",
            "For example step_partition=500.",
        )
    base = Path(monitor_path)
    runs = list(_read_runs(base, time_start, time_end, data_type_list))
    path = _create_output_directory(base, output_dirpath, "csv2db") / DATABASE_FILE
    with write_atomically(path, "The database") as temporary, closing(sqlite3.connect(temporary)) as database:
        database.executescript(_SCHEMA)
        _fill(database, [(run.rank, each) for run, series in runs for each in series], step_partition)
        database.commit()
    return path


def _fill(database: sqlite3.Connection, series: Sequence[tuple[int, Series]], partition: int) -> None:
    steps = [step for _, each in series for step in each.steps]
    numbers = {
        "max_rank": max((rank for rank, _ in series), default=0),
        "min_step": min(steps, default=0),
        "max_step": max(steps, default=0),
        "step_partition_size": partition,
    }
    database.executemany("INSERT INTO global_stats VALUES (?, ?)", numbers.items())
    operations: dict[Task, list[str]] = {}
    for _, each in series:
        listed = operations.setdefault(each.task, [])
        listed += [operation for operation in each.figures if operation not in listed]
    for metric, (task, stats) in enumerate(operations.items(), 1):
        database.execute("INSERT INTO monitoring_metrics VALUES (?, ?)", (metric, task.value))
        database.executemany("INSERT INTO metric_stats VALUES (?, ?)", [(metric, stat) for stat in stats])
        members = [(rank, each) for rank, each in series if each.task is task]
        _fill_metric(database, metric, stats, members, partition)


def _fill_metric(
    database: sqlite3.Connection,
    metric: int,
    stats: Sequence[str],
    members: Sequence[tuple[int, Series]],
    partition: int,
) -> None:
    columns = ", ".join(f'"{stat}" REAL DEFAULT NULL' for stat in stats)
    created_partitions: set[int] = set()
    for rank, each in members:
        target = _add_target(database, each)
        for index, step in enumerate(each.steps):
            first = step // partition * partition
            table = f"metric_{metric}_step_{first}_{first + partition - 1}"
            if first not in created_partitions:
                created_partitions.add(first)
                database.execute(
                    f"CREATE TABLE {table} (rank INTEGER NOT NULL, step INTEGER NOT NULL, "
                    f"target_id INTEGER NOT NULL, {columns}, PRIMARY KEY (rank, step, target_id)) "
                    "WITHOUT ROWID"
                )
            values = [each.figures[stat][index] if stat in each.figures else None for stat in stats]
            marks = ", ".join("?" * (3 + len(stats)))
            database.execute(
                f"INSERT OR REPLACE INTO {table} VALUES ({marks})", (rank, step, target, *map(_replace_nan, values))
            )


def _add_target(database: sqlite3.Connection, series: Series) -> int:
    place = series.name, series.model, series.micro_step or 0
    database.execute(
        "INSERT OR IGNORE INTO monitoring_targets (target_name, vpp_stage, micro_step) VALUES (?, ?, ?)",
        place,
    )
    query = "SELECT target_id FROM monitoring_targets WHERE (target_name, vpp_stage, micro_step) = (?, ?, ?)"
    return int(database.execute(query, place).fetchone()[0])


def _replace_nan(value: float | None) -> float | None:
    """Return a number that SQLite can store; SQLite has no NaN."""
    return None if value is None or math.isnan(value) else value


def _read_runs(
    base: Path, first: str | None, last: str | None, tasks: Sequence[str] | None
) -> Iterator[tuple[RunDirectory, list[Series]]]:
    """Yield the figures of each run in a range of time.

    Raises:
        UserError: An argument is not valid, or there are no files.
    """
    for text in (first, last):
        if text is not None and parse_time(text) is None:
            raise UserError(
                f"{text!r:.40} is no time stamp.", "Write it as in the names of directories: Dec03_21-34-40."
            )
    task_names = [task.value for task in Task]
    if unknown := [task for task in tasks or () if task not in task_names]:
        raise UserError(f"data_type_list holds the unknown {unknown[0]!r:.40}.", "Choose from:", task_names)
    if not base.is_dir():
        raise UserError(f'"{base}" is no directory.', "Give the output directory of the monitor.")
    has_files = False
    for run in find_run_directories(base, first, last):
        files = [f for f in run.path.glob("*.csv") if not tasks or parse_task(f.name) in tasks]
        series = read_series(run, files, read_table)
        if series:
            has_files = True
            yield run, series
    if not has_files:
        raise UserError(f'"{base}" has no csv files of the monitor in this range.', "Give another directory.")


def _create_output_directory(base: Path, path: str | os.PathLike[str] | None, kind: str) -> Path:
    if path is None:
        time = choose_run_directory(base, 0, datetime.now()).name.partition("-rank")[0]
        path = base / f"{time}-{kind}"
    output = Path(path)
    make_directory(output)
    return output

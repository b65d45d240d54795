"""The csv files of the monitor: writing and reading (docs/monitor.md#files)."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from probe_reporters.api import neutralise

from probe_check.monitor.figures import Figures
from probe_core.errors import UserError
from probe_core.files.atomic import create_path_error, open_file, write_text
from probe_core.files.user_files import read_regular_file

_FILE_NAME = re.compile(r"([a-z_]+)_(\d{1,12})-(\d{1,12})\.csv")
MAX_ROW_BYTES = 1 << 16
"""Bytes at the end of a file that are searched for an incomplete row."""
COUNT_OPERATION = "nans"
"""The operation whose results are written as whole numbers."""


def format_file_name(task: str, step: int, steps_per_file: int) -> str:
    """Return the name of the file that contains a step."""
    first = step // steps_per_file * steps_per_file
    return f"{task}_{first}-{first + steps_per_file - 1}.csv"


def parse_task(name: str) -> str | None:
    """Return the task in the name of a file; None if it is no file of the monitor."""
    match = _FILE_NAME.fullmatch(name)
    return match[1] if match else None


def parse_first_step(name: str) -> int:
    """Return the first step in the name of a file."""
    match = _FILE_NAME.fullmatch(name)
    return int(match[2]) if match else -1


def format_line(figures: Figures, operations: Sequence[str], step: int, digits: int) -> str:
    """Return the line of a value, with its end."""
    before, after = _format_surroundings(figures.model, figures.name, figures.shape, figures.dtype)
    micro_step = "" if figures.micro_step is None else f",{figures.micro_step}"
    numbers = [
        _format_number(value, digits, is_whole=operation == COUNT_OPERATION)
        for operation, value in zip(operations, figures.values)
    ]
    layout = after if figures.task.operations is None else ""
    return f"{before}{step}{micro_step},{','.join(numbers)}{layout}\n"


@lru_cache(maxsize=1 << 16)
def _format_surroundings(model: int, name: str, shape: tuple[int, ...] | None, dtype: str) -> tuple[str, str]:
    """Return the cells before the step and after the figures, which are the same in each step."""
    layout = ["nan", "nan"] if shape is None else [str(list(shape)), dtype]
    return format_csv([[str(model), neutralise(name), ""]])[:-1], f",{format_csv([layout])[:-1]}"


def _format_number(value: float, digits: int, *, is_whole: bool) -> str:
    if not math.isfinite(value):
        return repr(value)
    return str(int(value)) if is_whole else repr(round(value, digits))


def write_lines(path: Path, header: Sequence[str], lines: Sequence[str], *, is_whole: bool) -> None:
    """Write lines to a file.

    Args:
        path: The file.
        header: The titles of the columns.
        lines: The lines with their ends.
        is_whole: True if the file holds nothing else; it is then replaced as a whole. Otherwise the lines are
            added in one write, so that a process that is killed leaves complete rows.

    Raises:
        UserError: The file cannot be written.
    """
    text = "".join(lines)
    if is_whole:
        write_text(path, format_csv([header]) + text)
        return
    try:
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            is_new = _remove_incomplete_row(descriptor) == 0
            _write_all(descriptor, ((format_csv([header]) if is_new else "") + text).encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise create_path_error(path, error) from None


def _remove_incomplete_row(descriptor: int) -> int:
    """Cut off a last row without an end, which a killed process may have left; return the size."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    os.lseek(descriptor, max(0, size - MAX_ROW_BYTES), os.SEEK_SET)
    tail = os.read(descriptor, MAX_ROW_BYTES)
    if tail and not tail.endswith(b"\n"):
        size -= len(tail) - (tail.rfind(b"\n") + 1)
        os.ftruncate(descriptor, size)
    return size


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def format_csv(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as csv."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class MonitorTable:
    """A csv file that was read.

    Attributes:
        path: The file.
        columns: The titles of its columns.
        rows: Its complete rows.
    """

    path: Path
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def list_operations(self) -> list[str]:
        """Return the titles of the columns with figures."""
        others = ("vpp_stage", "name", "step", "micro_step", "shape", "dtype")
        return [title for title in self.columns if title not in others]


def read_table(path: Path) -> MonitorTable:
    """Return the complete rows of a csv; a last row without an end of line is left out.

    Raises:
        UserError: The file cannot be read, or is not a csv of the monitor.
    """
    try:
        text = read_regular_file(path).decode("utf-8-sig", "replace")
    except (OSError, ValueError) as error:
        raise UserError(
            f'"{path}" cannot be read: {getattr(error, "strerror", None) or error}.',
            "Check the file and its permissions.",
        ) from None
    text = text[: text.rfind("\n") + 1]
    try:
        rows = [tuple(row) for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error as error:
        raise _create_table_error(path, str(error)) from None
    header = rows[0] if rows else ()
    if not {"vpp_stage", "name", "step"} <= set(header):
        raise _create_table_error(path, "it has no columns vpp_stage, name and step")
    return MonitorTable(path, header, tuple(row for row in rows[1:] if len(row) == len(header)))


def _create_table_error(path: Path, reason: str) -> UserError:
    return UserError(f'"{path}" is no table of the monitor: {reason}.', "Remove the file, or give another directory.")

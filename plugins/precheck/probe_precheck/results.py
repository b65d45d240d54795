"""Result files of a pre-check: one with a row for each API call, one with a row for each output (details).

The details of a call are written before its row, each with one system call. If the process ends at any time, the
calls in the result file are complete, and a resumed check runs the other calls again (docs/standards.md#resume).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from probe_reporters.api import add_second, neutralise

from probe_core.errors import UserError, make_printable
from probe_core.files.atomic import (
    create_file,
    create_path_error,
    make_directory,
    open_file,
    remove_leftovers,
)
from probe_core.model.plan import TIME_STAMP_PATTERN, parse_time_stamp
from probe_precheck import csvfile
from probe_precheck.csvfile import BLANK, format_messages, format_number, read_table
from probe_precheck.model import Detail, Result
from probe_precheck.tables import CsvColumn, Tables

RESULT_NAME = "accuracy_checking_result_{}.csv"
DETAILS_NAME = "accuracy_checking_details_{}.csv"
_RESULT_NAME_PATTERN = re.compile(rf"accuracy_checking_result_({TIME_STAMP_PATTERN})\.csv")
_DETAIL_NAME_PATTERN = re.compile(r"(.*)\.(?:forward|backward)\.output\.\d+")


def get_call_name(name: str) -> str:
    """Return the name of the call of a row of the details; names of another form are returned unchanged."""
    match = _DETAIL_NAME_PATTERN.fullmatch(name)
    return match[1] if match else name


def format_cell_name(name: str) -> str:
    """Return a name as the text of its cell: on one line, and never a formula of a spreadsheet."""
    return neutralise(make_printable(name, sys.maxsize))


def build_result_cells(result: Result, language: str) -> dict[str, str]:
    """Return the cells of a call's row by column key, with messages in ``zh`` or ``en``."""
    return {
        "name": format_cell_name(result.name),
        "forward": BLANK if result.forward is None else result.forward.value,
        "backward": BLANK if result.backward is None else result.backward.value,
        "message": format_messages(result.messages, language) or BLANK,
        "standard": BLANK if result.standard is None else result.standard.value,
    }


def build_detail_cells(detail: Detail, language: str, precision: int) -> dict[str, str]:
    """Return the cells of an output's row by column key.

    Args:
        detail: The row.
        language: The language of messages, ``zh`` or ``en``.
        precision: The number of digits after the decimal point.
    """
    cells = {key: format_number(value, precision) for key, value in detail.numbers.items()}
    cells.update(
        name=format_cell_name(detail.name),
        bench_dtype=detail.bench_dtype or BLANK,
        device_dtype=detail.device_dtype or BLANK,
        shape=detail.shape or BLANK,
        status=detail.status.value,
        message=format_messages(detail.messages, language) or BLANK,
        standard=BLANK if detail.standard is None else detail.standard.value,
        standard_message=format_messages(detail.standard_messages, language) or BLANK,
    )
    return cells


def _may_belong_to(api: str, tail: str) -> bool:
    """Return True if a row of the details that begins with ``tail`` may belong to the API call."""
    start = f"{api}."
    return start.startswith(tail[: len(start)])


class CheckFiles:
    """Result file and details file, open for appending.

    Args:
        result: The path of the result file; the details file is next to it.
        columns: The columns of the details.
        language: The language of the headers and messages.
        precision: The number of digits after the decimal point.
        tables: The columns that the files of an earlier run must have.

    Attributes:
        result: The path of the result file.
        details: The path of the details file.
        time_stamp: The 14 digits in both names.
        done: The names of the API calls that both files contain.
    """

    def __init__(
        self,
        result: Path,
        columns: Sequence[CsvColumn],
        language: str,
        precision: int,
        tables: Tables = Tables(),  # noqa: B008
    ) -> None:
        self.result = result
        self.time_stamp = parse_time_stamp(result)
        self.details = result.with_name(DETAILS_NAME.format(self.time_stamp))
        self.done: set[str] = set()
        self._language = language
        self._precision = precision
        self._columns = columns
        self._tables = tables
        self._files: list[BinaryIO] = []

    # -- opening ---------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        directory: Path,
        time_stamp: str,
        columns: Sequence[CsvColumn],
        language: str,
        precision: int,
        tables: Tables = Tables(),  # noqa: B008
    ) -> CheckFiles:
        """Create both files in ``directory``, which is created if it is missing.

        If files of this time stamp exist, the next free second is used.
        """
        make_directory(directory)
        remove_leftovers(directory)
        for _ in range(1000):
            files = cls(directory / RESULT_NAME.format(time_stamp), columns, language, precision, tables)
            try:
                files._open(is_new=True)
            except FileExistsError:
                time_stamp = add_second(time_stamp)
                continue
            except OSError as error:
                raise create_path_error(files.result, error) from None
            try:
                append_bytes(files._files[0], files.result, csvfile.format_header(tables.result, language))
                append_bytes(files._files[1], files.details, csvfile.format_header(columns, language))
            except BaseException:
                files.remove()
                raise
            return files
        raise UserError(
            f"{directory} contains too many results of this time, so there is no free name for new files.",
            "Give another directory with -o.",
        )

    @classmethod
    def resume(
        cls,
        result: Path,
        columns: Sequence[CsvColumn],
        precision: int,
        tables: Tables = Tables(),  # noqa: B008
    ) -> CheckFiles:
        """Open the files of an earlier run, and remove the rows of the call that it did not finish.

        Raises:
            UserError: The file was renamed, its details are missing, or either is damaged or in use.
        """
        if not _RESULT_NAME_PATTERN.fullmatch(result.name):
            raise UserError(
                f'"{result.name}" is not the name of a result file, please do not modify the result csv name.',
                "Restore its name: accuracy_checking_result_, the 14 digits of its time, and .csv.",
            )
        files = cls(result, columns, "zh", precision, tables)
        if not result.is_file():
            raise UserError(f"There is no {result}.", "Give the result csv of the check to resume with -csv_path.")
        if not files.details.is_file():
            raise UserError(
                f"{files.details.name} is not in the directory of {result.name}, so the check cannot be resumed.",
                "Put both files of the check into one directory.",
            )
        try:
            remove_leftovers(result.parent)
            files._open(is_new=False)
        except OSError as error:
            raise create_path_error(result, error) from None
        try:
            files._load()
        except BaseException:
            files.close()
            raise
        return files

    def _open(self, *, is_new: bool) -> None:
        self._files = [open_result_file(self.result, is_new)]
        try:
            lock_file(self._files[0], self.result)
            self._files.append(open_result_file(self.details, is_new))
        except BaseException:
            self.close()
            if is_new:
                self.result.unlink(missing_ok=True)
            raise

    def _load(self) -> None:
        """Read the names of finished calls, and remove rows of unfinished calls."""
        required = [[column.key for column in columns] for columns in self._tables]
        result = read_table(self.result, self._tables.result, required[0], may_be_cut=True)
        details = read_table(self.details, self._columns, required[1], may_be_cut=True)
        self._language = details.language
        added_columns = [column for column in self._columns if column not in details.columns]
        self._columns = (*details.columns, *added_columns)
        rows = result.rows
        if rows and details.is_cut and _may_belong_to(rows[-1]["name"].strip(), details.tail):
            rows = rows[:-1]  # a row of its details is incomplete
        names = [row["name"].strip() for row in rows]
        self.done = set(names)
        if len(self.done) < len(names):
            duplicate = next(name for name in names if names.count(name) > 1)
            raise UserError(
                f"{self.result} has two rows for {duplicate}, so it cannot be resumed.",
                "Remove one of them, or run the check again without -csv_path.",
            )
        complete_rows = [row for row in details.rows if get_call_name(row["name"].strip()) in self.done]
        for file, table in zip(self._files, (result, details)):
            if table.is_cut:
                file.truncate(table.complete_bytes)
            file.seek(0, os.SEEK_END)
        if len(rows) < len(result.rows):
            csvfile.write_table(self.result, self._tables.result, rows, self._language)
            self._reopen(0, self.result)
        if added_columns or len(complete_rows) < len(details.rows):
            csvfile.write_table(self.details, self._columns, complete_rows, self._language)
            self._reopen(1, self.details)

    def _reopen(self, number: int, path: Path) -> None:
        """Open the file that replaced the result file (0) or the details file (1)."""
        file = open_result_file(path, is_new=False)
        file.seek(0, os.SEEK_END)
        if number == 0:
            lock_file(file, path)
        self._files[number].close()
        self._files[number] = file

    def has(self, name: str) -> bool:
        """Return True if both files contain the call."""
        return format_cell_name(name).strip() in self.done

    # -- writing ---------------------------------------------------------------------------

    def append(self, result: Result) -> None:
        """Append the rows of an API call.

        Raises:
            UserError: The files cannot be written, for example because the disk is full. Earlier rows remain.
        """
        append_bytes(
            self._files[1],
            self.details,
            csvfile.format_rows(
                csvfile.order_cells(build_detail_cells(detail, self._language, self._precision), self._columns)
                for detail in result.details
            ),
        )
        row = build_result_cells(result, self._language)
        append_bytes(self._files[0], self.result, csvfile.format_rows([csvfile.order_cells(row, self._tables.result)]))
        self.done.add(format_cell_name(result.name).strip())

    def finish(self, order: Sequence[str]) -> None:
        """Sort the rows into the order of the run, and close the files."""
        positions = {format_cell_name(name).strip(): position for position, name in enumerate(order)}
        for path, columns in ((self.result, self._tables.result), (self.details, tuple(self._columns))):
            rows = read_table(path, columns, [column.key for column in columns]).rows
            keys = [positions.get(get_call_name(row["name"].strip()), len(positions)) for row in rows]
            if keys != sorted(keys):
                ordered = [row for _, row in sorted(zip(keys, rows), key=lambda item: item[0])]
                csvfile.write_table(path, columns, ordered, self._language)
        self.close()

    def remove(self) -> None:
        """Close and delete both files."""
        self.close()
        for path in (self.result, self.details):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close both files."""
        for file in self._files:
            with suppress(OSError):
                file.close()


def open_result_file(path: Path, is_new: bool) -> BinaryIO:
    """Open a result file for reading and writing; symbolic links are refused."""
    file = os.fdopen(create_file(path) if is_new else open_file(path, os.O_RDWR), "r+b", buffering=0)
    return cast(BinaryIO, file)


def append_bytes(file: BinaryIO, path: Path, data: bytes) -> None:
    """Append bytes to an unbuffered file, completely or not at all.

    Raises:
        UserError: The bytes cannot be written, for example because the disk is full.
    """
    start = file.tell()
    view = memoryview(data)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        with suppress(OSError):
            file.truncate(start)
        raise create_path_error(path, error) from None


def lock_file(file: BinaryIO, path: Path) -> None:
    """Lock the file against other pre-checks, if the system supports locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"Another pre-check is writing {path.name}.", "Wait until it ends, or stop it, and resume again."
        ) from None
    except OSError:
        return  # a file system without locks

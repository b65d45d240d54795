"""Result files of each rank: two files for calls judged by two parties, and two for calls judged by three.

The details of a call are written first, then its row. So the calls in the result files are complete even if the
receiver is killed. A resumed receiver removes details without a row and judges these calls again
(docs/online.md#files).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from probe_precheck.api import CsvColumn
from probe_precheck.csvfile import format_header, format_rows, order_cells, read_table
from probe_precheck.results import append_bytes, get_call_name, open_result_file
from probe_precheck.tables import Tables

from probe_core.errors import UserError
from probe_core.files.atomic import create_path_error, replace_file
from probe_core.model.plan import TIME_STAMP_PATTERN
from probe_online.accounts import CallKey
from probe_online.judging import SentRows

RESULT_FILE_NAMES = {2: "accuracy_checking_{}_{}_rank{}.csv", 3: "api_precision_compare_{}_{}_rank{}.csv"}
"""Names of the files by the number of parties: result or details, time stamp, rank."""
_NAME = re.compile(
    rf"(accuracy_checking|api_precision_compare)_(?:result|details)_({TIME_STAMP_PATTERN})_rank(\d+)\.csv"
)


class WrittenRow(NamedTuple):
    """A row of a call in a result file.

    Attributes:
        key: The identity of the call.
        cells: Its cells by column key.
    """

    key: CallKey
    cells: Mapping[str, str]


class CallFiles:
    """The result file and the details file of one rank and number of parties, open for appending.

    Args:
        directory: The directory of the files.
        time_stamp: The 14 digits in the file names.
        rank: The rank.
        parties: 2 or 3.
        tables: The columns of the files.
        language: The language of the headers.
    """

    def __init__(
        self, directory: Path, time_stamp: str, rank: int, parties: int, tables: Tables, language: str
    ) -> None:
        self.paths = tuple(
            directory / RESULT_FILE_NAMES[parties].format(kind, time_stamp, rank) for kind in ("result", "details")
        )
        self._tables = tables
        self._language = language
        self._rank = rank
        self._files: list[BinaryIO] = []

    def append(self, key: CallKey, rows: SentRows) -> None:
        """Append the rows of a call.

        Raises:
            UserError: The files cannot be written, for example because the disk is full; earlier rows stay.
        """
        if not self._files:
            self._create()
        key_cells = {"step": str(key.step), "session": key.session}
        details = format_rows(order_cells({**row, **key_cells}, self._tables.details) for row in rows.details)
        append_bytes(self._files[1], self.paths[1], details)
        append_bytes(
            self._files[0], self.paths[0], format_rows([order_cells({**rows.result, **key_cells}, self._tables.result)])
        )

    def resume(self) -> Iterator[WrittenRow]:
        """Open files of an earlier receiver, remove unfinished calls, and yield the rows of the others.

        Raises:
            UserError: A file is damaged or missing.
        """
        tables = []
        for path, columns in zip(self.paths, self._tables):
            if _is_cut_short(
                path, format_header(columns, self._language)
            ):  # the receiver was killed before both headers were written
                self._replace(path, columns, ())
            tables.append(read_table(path, columns, [column.key for column in columns], may_be_cut=True))
        result, details = tables
        rows_by_key = {self._parse_key(self.paths[0], row, row["name"].strip()): row for row in result.rows}
        if len(rows_by_key) < len(result.rows):
            raise UserError(
                f"{self.paths[0]} has two rows for one call, so the receiver cannot go on with it.",
                "Give another directory with -o.",
            )
        complete_rows = [
            row
            for row in details.rows
            if self._parse_key(self.paths[1], row, get_call_name(row["name"].strip())) in rows_by_key
        ]
        for path, columns, table, rows in zip(self.paths, self._tables, tables, (result.rows, complete_rows)):
            if table.is_cut or len(rows) < len(table.rows) or not table.complete_bytes:
                self._replace(path, columns, rows)
        try:
            self._files = [open_result_file(path, is_new=False) for path in self.paths]
        except OSError as error:
            raise create_path_error(self.paths[0], error) from None
        for file in self._files:
            file.seek(0, 2)
        for key, row in rows_by_key.items():
            yield WrittenRow(key, row)

    def _parse_key(self, path: Path, row: Mapping[str, str], name: str) -> CallKey:
        try:
            return CallKey(self._rank, row["session"].strip(), int(row["step"]), name)
        except ValueError:
            raise UserError(
                f"{path} has a row whose step is not a number.", "Give another directory with -o."
            ) from None

    def _create(self) -> None:
        try:
            self._files = [open_result_file(path, is_new=True) for path in reversed(self.paths)][::-1]
        except OSError as error:
            raise create_path_error(self.paths[0], error) from None
        for file, path, columns in zip(self._files, self.paths, self._tables):
            append_bytes(file, path, format_header(columns, self._language))

    def _replace(self, path: Path, columns: Sequence[CsvColumn], rows: Sequence[Mapping[str, str]]) -> None:
        try:
            with replace_file(path) as file:
                file.write(
                    format_header(columns, self._language) + format_rows(order_cells(row, columns) for row in rows)
                )
        except OSError as error:
            raise create_path_error(path, error) from None

    def close(self) -> None:
        """Close both files."""
        for file in self._files:
            with suppress(OSError):
                file.close()


def _is_cut_short(path: Path, head: bytes) -> bool:
    """Return True if a file does not exist, or ends within its header."""
    try:
        with path.open("rb") as file:
            beginning = file.read(len(head))
    except FileNotFoundError:
        return True
    except OSError as error:
        raise create_path_error(path, error) from None
    return len(beginning) < len(head) and head.startswith(beginning)


class ResultDirectory:
    """The result files of all ranks.

    Args:
        directory: The directory of the files, which must exist.
        time_stamp: The 14 digits in the file names.
        tables: The columns of the files by the number of parties.
        language: The language of the headers.
    """

    def __init__(self, directory: Path, time_stamp: str, tables: Mapping[int, Tables], language: str) -> None:
        self.directory = directory
        self.time_stamp = time_stamp
        self._tables = tables
        self._language = language
        self._files: dict[tuple[int, int], CallFiles] = {}

    def append(self, key: CallKey, rows: SentRows) -> None:
        """Append the rows of a call to the files of its rank.

        Raises:
            UserError: The files cannot be written.
        """
        self._get_call_files(key.rank, rows.parties).append(key, rows)

    def resume(self) -> Iterator[WrittenRow]:
        """Open all files of this time stamp, and yield the rows of the calls that they hold.

        Raises:
            UserError: A file is damaged.
        """
        matches = (_NAME.fullmatch(path.name) for path in sorted(self.directory.iterdir()))
        kinds = {
            (int(match[3]), 2 if match[1] == "accuracy_checking" else 3)
            for match in matches
            if match is not None and match[2] == self.time_stamp
        }
        for rank, parties in sorted(kinds):
            yield from self._get_call_files(rank, parties).resume()

    @property
    def paths(self) -> list[Path]:
        """The paths of the result files that exist."""
        return [path for _, files in sorted(self._files.items()) for path in files.paths if path.exists()]

    def _get_call_files(self, rank: int, parties: int) -> CallFiles:
        key = rank, parties
        if key not in self._files:
            tables = self._tables[parties]
            self._files[key] = CallFiles(self.directory, self.time_stamp, rank, parties, tables, self._language)
        return self._files[key]

    def close(self) -> None:
        """Close all files."""
        for files in self._files.values():
            files.close()

"""A file of ptdbg_ascend as its ``compare`` read it, the release that wrote it, and the table on two."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from probe_recording.api import load_npy
from probe_recording.reading.tensors import Tensors, open_tensors

from probe_core.errors import UnreadableTensor
from probe_core.model import Colour, Kind, Value
from probe_legacy.compare.groups import OldRow, OldStack, RowGroup, split_by_output, split_by_stack
from probe_legacy.compare.table_texts import get_message, get_table_entry
from probe_legacy.reading.lines import DamagedRow, read_lines
from probe_legacy.reading.values import read_row_name

Cells = list[object]
STACK_PREFIX = "api_stack"
STATISTIC_COUNT = 3
"""Number of statistics in a row of 2.x and 3.x; later releases add the norm."""
_DOTTED_NAME = re.compile(r"\.(?:forward|backward)\.(?:input|output)(?:[.\d]*)$")


class Release(IntEnum):
    """A release of ptdbg_ascend whose table differs from the one before it."""

    V2, V3, V4, V6 = 2, 3, 4, 6


class LegacyTable(NamedTuple):
    """A table: its columns and its rows.

    Attributes:
        columns: The names of the columns.
        rows: The cells.
        release: The release of ptdbg_ascend that wrote such tables.
        colors: The colors of rows in a workbook, by their index.
    """

    columns: list[str]
    rows: list[Cells]
    release: Release = Release.V2
    colors: Mapping[int, Colour] = {}

    @property
    def is_judged(self) -> bool:
        """True if its rows have verdicts; tables of statistics before 6.0 have none."""
        return not {*get_table_entry("ptdbg", "verdict"), get_table_entry("later", "result")}.isdisjoint(self.columns)

    @property
    def suffix(self) -> str:
        """The suffix of its file: 6.0 wrote workbooks."""
        return ".xlsx" if self.release >= Release.V6 else ".csv"


class PtdbgDump(NamedTuple):
    """A file of ptdbg_ascend, ready to be compared.

    Attributes:
        directory: The directory of its tensors.
        tensors: The tensors in it.
        rows: Its rows in order.
        has_stacks: True for a file of mode api_stack.
        release: The release that wrote it, as far as tables go.
    """

    directory: Path
    tensors: Tensors
    rows: Sequence[OldRow | OldStack]
    has_stacks: bool
    release: Release

    def iterate_groups(self) -> Iterator[RowGroup]:
        """Return the groups of its rows."""
        return split_by_stack(self.rows) if self.has_stacks else split_by_output(self.rows)

    @property
    def has_statistics(self) -> bool:
        """True if a row has statistics."""
        return any(isinstance(row, OldRow) and row.statistics for row in self.rows)

    @property
    def has_checksums(self) -> bool:
        """True if a row has a checksum."""
        return any(isinstance(row, OldRow) and row.checksum for row in self.rows)

    def load_array(self, row: OldRow) -> Any:
        """Return the tensor of a row.

        Raises:
            UnreadableTensor: There is none, or it cannot be read.
        """
        return self.tensors(Value(Kind.TENSOR, "", "", data_name=format_file_name(row)))


def format_file_name(row: OldRow) -> str:
    """Return the name of the file with the tensor of a row."""
    return f"{row.name}.npy"


def open_dump(path: Path) -> PtdbgDump:
    """Return a file with its rows.

    Raises:
        UserError: The file cannot be read.
    """
    rows: list[OldRow | OldStack] = []
    releases: list[Release] = []

    def keep(row: Any, begin: int) -> None:
        name = read_row_name(row)
        if "stack_info" in name:
            rows.append(OldStack(name, row[1]))
        elif not 5 <= len(row) <= 6:
            raise DamagedRow("has neither 5 nor 6 fields")
        else:
            statistics = row[5] if len(row) == 6 and isinstance(row[5], list) else []
            checksum = row[2] if isinstance(row[2], str) else ""
            rows.append(OldRow(name, str(row[3]), row[4], statistics, begin, checksum))
            releases.append(_release(row))

    read_lines(path, keep)
    directory = path.with_suffix("")
    tensors = open_tensors(directory, load_npy)
    return PtdbgDump(directory, tensors, rows, path.name.startswith(STACK_PREFIX), max(releases, default=Release.V2))


def _release(row: Sequence[Any]) -> Release:
    """Return the release that wrote a row: names with dots, four statistics and the flag tell it."""
    if _DOTTED_NAME.search(row[0]):
        return Release.V6
    statistics = row[5] if len(row) == 6 and isinstance(row[5], list) else []
    if len(statistics) > STATISTIC_COUNT:
        return Release.V4
    return Release.V3 if row[1] == 0 and type(row[1]) is int else Release.V2


class MeasurementError(Exception):
    """Two tensors of which one cannot be read; the text is the message of their row."""


def load_arrays(
    npu_row: OldRow, bench_row: OldRow, dumps: tuple[PtdbgDump, PtdbgDump], no_file: str
) -> tuple[Any, Any]:
    """Return the tensors of two rows.

    Args:
        npu_row: The row of the NPU.
        bench_row: The row of the bench.
        dumps: Both files.
        no_file: The name of the message on a file that is missing.

    Raises:
        NotMeasured: One of them cannot be read.
    """
    arrays = []
    for dump, row in zip(dumps, (npu_row, bench_row)):
        try:
            arrays.append(dump.load_array(row))
        except UnreadableTensor as error:
            path = dump.directory / format_file_name(row)
            raise MeasurementError(get_message(no_file, path=path) if error.missing else str(error)) from None
    return arrays[0], arrays[1]

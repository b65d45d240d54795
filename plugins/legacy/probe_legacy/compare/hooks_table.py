"""The table of torch_npu.hooks on two of its files (docs/legacy.md#tables)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from probe_core.errors import UserError
from probe_legacy.compare.dump import Cells, LegacyTable
from probe_legacy.compare.groups import OldRow, OldStack, SameNamesRule, align_groups, split_after_output
from probe_legacy.compare.measures import measure_hooks
from probe_legacy.compare.table_texts import get_message, get_table_entry
from probe_legacy.reading.hooks import parse_numbers
from probe_legacy.reading.lines import MAX_LINE_BYTES, DamagedRow, parse_value, read_lines
from probe_legacy.reading.values import read_row_name

_RUNNING_NUMBER = re.compile(r"^\d+_")


def drop_running_number(name: str) -> str:
    """Return a name without the running number that version 3.0.0 and later write in front of it."""
    return _RUNNING_NUMBER.sub("", name)


def create_hooks_table(npu: Path, bench: Path, *, with_shapes: bool = False) -> LegacyTable:
    """Return the table of two files, which the tool calls npu and bench.

    Args:
        npu: The file of the NPU.
        bench: The file of the bench.
        with_shapes: True if groups match only where dtypes and shapes are equal (``shape_flag`` of the tool).

    Raises:
        UserError: A file cannot be read.
    """
    npu_rows, bench_rows = _read_rows(npu), _read_rows(bench)
    is_numbered = any(drop_running_number(row.name) != row.name for row in npu_rows)
    columns = [*get_table_entry("hooks", "names" if is_numbered else "name"), *get_table_entry("hooks", "rest")]
    table = LegacyTable(columns, [])
    try:
        with npu.open("rb") as file, bench.open("rb") as bench_file:
            rule = SameNamesRule(drop_running_number, with_shapes=with_shapes)
            for group, partner in align_groups(split_after_output(npu_rows), split_after_output(bench_rows), rule):
                for row, match in zip(group.rows, partner.rows if partner else ()):
                    names: Cells = [row.name, match.name] if is_numbered else [row.name]
                    shapes = [row.dtype, match.dtype, str(row.shape), str(match.shape)]
                    table.rows.append([*names, *shapes, *_measure_row(row, match, file, bench_file)])
    except (OSError, DamagedRow) as error:
        raise UserError(
            f"{npu} or {bench} changed or became unreadable while the table was made: {error}.", "Compare again."
        ) from None
    return table


def _read_rows(path: Path) -> Sequence[OldRow | OldStack]:
    """Return the rows of a file, which contains no call stacks."""
    rows: list[OldRow | OldStack] = []

    def add_row(row: Any, begin: int) -> None:
        name = read_row_name(row)
        if len(row) != 4:
            raise DamagedRow("is of an overflow check, which has no table")
        parse_numbers(row[1])
        rows.append(OldRow(name, str(row[2]), row[3], (), begin))

    read_lines(path, add_row)
    return rows


def _measure_row(row: OldRow, bench_row: OldRow, file: BinaryIO, bench_file: BinaryIO) -> Sequence[object]:
    """Return the cells of a pair of rows after their names, dtypes and shapes."""
    if row.shape != bench_row.shape:
        not_calculated = get_message("not_calculated")
        return f"{not_calculated} ", not_calculated, not_calculated
    return measure_hooks(_read_values(row, file), _read_values(bench_row, bench_file))


def _read_values(row: OldRow, file: BinaryIO) -> np.ndarray[Any, Any]:
    """Read the values of a row again from its file."""
    file.seek(row.begin)
    return np.array(parse_value(file.readline(MAX_LINE_BYTES))[1], np.float64)

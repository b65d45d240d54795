"""The table of torch_npu.hooks on two of its files (docs/legacy.md#tables)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from probe_core.errors import UserError
from probe_legacy.compare.dump import Cells, Table
from probe_legacy.compare.groups import OldRow, OldStack, SameNames, aligned, groups_to_output
from probe_legacy.compare.measures import measure_hooks
from probe_legacy.compare.words import message, word
from probe_legacy.reading.hooks import numbers_of
from probe_legacy.reading.lines import LONGEST, DamagedRow, read_lines, value_of
from probe_legacy.reading.values import text_of_name

_NUMBER = re.compile(r"\d+_")


def strip(name: str) -> str:
    """Return a name without the running number of 3.0.0 and later."""
    return _NUMBER.sub("", name, count=1) if _NUMBER.match(name) else name


def table_of(npu: Path, bench: Path, *, with_shapes: bool = False) -> Table:
    """Return the table of two files.

    Args:
        npu: The file of the NPU.
        bench: The file of the bench.
        with_shapes: True if groups match only where dtypes and shapes are equal (``shape_flag`` of the tool).

    Raises:
        UserError: A file cannot be read.
    """
    own, other = _rows_in(npu), _rows_in(bench)
    is_numbered = any(strip(row.name) != row.name for row in own)
    columns = [*word("hooks", "names" if is_numbered else "name"), *word("hooks", "rest")]
    table = Table(columns, [])
    try:
        with npu.open("rb") as file, bench.open("rb") as other_file:
            rule = SameNames(strip, with_shapes=with_shapes)
            for group, partner in aligned(groups_to_output(own), groups_to_output(other), rule):
                for row, match in zip(group.rows, partner.rows if partner else ()):
                    names: Cells = [row.name, match.name] if is_numbered else [row.name]
                    shapes = [row.dtype, match.dtype, str(row.shape), str(match.shape)]
                    table.rows.append([*names, *shapes, *_measured(row, match, file, other_file)])
    except (OSError, DamagedRow) as error:
        raise UserError(f"{npu} or {bench} cannot be read again: {error}.", "Compare again.") from None
    return table


def _rows_in(path: Path) -> Sequence[OldRow | OldStack]:
    rows: list[OldRow | OldStack] = []

    def keep(row: Any, begin: int) -> None:
        name = text_of_name(row)
        if len(row) != 4:
            raise DamagedRow("is of an overflow check, which has no table")
        numbers_of(row[1])
        rows.append(OldRow(name, str(row[2]), row[3], (), begin))

    read_lines(path, keep)
    return rows


def _measured(row: OldRow, other: OldRow, file: BinaryIO, other_file: BinaryIO) -> Sequence[object]:
    if row.shape != other.shape:
        no = message("not_calculated")
        return f"{no} ", no, no
    return measure_hooks(_values(row, file), _values(other, other_file))


def _values(row: OldRow, file: BinaryIO) -> np.ndarray[Any, Any]:
    file.seek(row.begin)
    return np.array(value_of(file.readline(LONGEST))[1], np.float64)

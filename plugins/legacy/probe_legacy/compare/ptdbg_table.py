"""The table of ptdbg_ascend on two of its files (docs/legacy.md#tables): of 2.3, or of a later release."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from probe_legacy.compare.advice import advice_on
from probe_legacy.compare.dump import (
    STATISTICS,
    Cells,
    Dump,
    NotMeasured,
    Release,
    Table,
    arrays_of,
    open_dump,
)
from probe_legacy.compare.groups import OldRow, aligned
from probe_legacy.compare.later_table import later_table
from probe_legacy.compare.measures import accuracy, measure_ptdbg
from probe_legacy.compare.words import message, word

__all__ = ["advice_on", "table_of"]


def table_of(npu: Path, bench: Path, *, fuzzy: bool = False) -> Table:
    """Return the table of two files, as the release wrote it that recorded them; of two, the later.

    Args:
        npu: The file of the NPU.
        bench: The file of the bench.
        fuzzy: True if the numbers of calls may differ, from 3.0 on.

    Raises:
        UserError: A file cannot be read.
    """
    dumps = open_dump(npu), open_dump(bench)
    try:
        release = max(dump.release for dump in dumps)
        return _table(dumps) if release is Release.V2 else later_table(dumps, release, fuzzy)
    finally:
        for dump in dumps:
            dump.tensors.close()


def _table(dumps: tuple[Dump, Dump]) -> Table:
    """Return the table of 2.3."""
    has_statistics = all(dump.has_statistics for dump in dumps)
    has_stacks = all(dump.has_stacks for dump in dumps)
    columns = [*word("ptdbg", "names"), *word("ptdbg", "metrics")]
    if has_statistics:
        columns += word("ptdbg", "statistics")
    columns += word("ptdbg", "verdict")
    if has_stacks:
        columns.append(word("ptdbg", "stack"))
    rows: list[Cells] = []
    for group, partner in aligned(dumps[0].groups(), dumps[1].groups()):
        for index, row in enumerate(group.rows):
            other = partner.rows[index] if partner else None
            cells = _cells(row, other, dumps, has_statistics)
            if has_stacks:
                is_first = (
                    index == 0
                    and group.frames is not None
                    and (partner is None or partner.frames is not None)
                )
                cells.append(str(group.frames) if is_first else "")
            rows.append(cells)
    return Table(columns, rows)


def _cells(row: OldRow, other: OldRow | None, dumps: tuple[Dump, Dump], has_statistics: bool) -> Cells:
    missing = message("not_available")
    if other is None:
        names: Cells = [row.name, missing, row.dtype, missing, str(row.shape), missing]
        cosine, difference, said = missing, missing, message("no_bench")
    else:
        names = [row.name, other.name, row.dtype, other.dtype, str(row.shape), str(other.shape)]
        cosine, difference, said = _measured(row, other, dumps)
    statistics: Cells = []
    if has_statistics:
        statistics = [*_three(row.statistics), *_three(other.statistics if other else ())]
    return [*names, cosine, difference, *statistics, accuracy(cosine, difference), said]


def _three(given: Sequence[Any]) -> Cells:
    return [*given[:STATISTICS], *[message("not_available")] * (STATISTICS - len(given))]


def _measured(row: OldRow, other: OldRow, dumps: tuple[Dump, Dump]) -> tuple[Any, Any, str]:
    try:
        return measure_ptdbg(*arrays_of(row, other, dumps, "no_file"))
    except NotMeasured as error:
        return message("not_available"), message("not_available"), str(error)

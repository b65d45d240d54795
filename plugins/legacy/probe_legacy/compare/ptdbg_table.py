"""The table and the advice of ptdbg_ascend 2.3 on two of its files (docs/legacy.md#tables)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from probe_recording import Tensors, load_npy, tensors_in

from probe_core.errors import UnreadableTensor
from probe_core.model import Kind, Value
from probe_legacy.compare.groups import (
    Group,
    OldRow,
    OldStack,
    aligned,
    groups_by_output,
    groups_by_stack,
)
from probe_legacy.compare.measures import accuracy, measure_ptdbg
from probe_legacy.compare.words import message, word
from probe_legacy.reading.lines import DamagedRow, read_lines
from probe_legacy.reading.values import text_of_name

Cells = list[object]
STACKS = "api_stack"
COUNT = 3
"""Number of statistics in the table of 2.3."""


class Dump(NamedTuple):
    """A file of ptdbg_ascend, ready to be compared.

    Attributes:
        directory: The directory of its tensors.
        tensors: The tensors in it.
        rows: Its rows in order.
        has_stacks: True for a file of mode api_stack.
    """

    directory: Path
    tensors: Tensors
    rows: Sequence[OldRow | OldStack]
    has_stacks: bool

    def groups(self) -> Iterator[Group]:
        """Return the groups of its rows."""
        return groups_by_stack(self.rows) if self.has_stacks else groups_by_output(self.rows)

    @property
    def has_statistics(self) -> bool:
        """True if a row has statistics."""
        return any(isinstance(row, OldRow) and row.statistics for row in self.rows)


class Table(NamedTuple):
    """A table: its columns and its rows."""

    columns: list[str]
    rows: list[Cells]


def table_of(npu: Path, bench: Path) -> Table:
    """Return the table of two files.

    Raises:
        UserError: A file cannot be read.
    """
    dumps = open_dump(npu), open_dump(bench)
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
    for dump in dumps:
        dump.tensors.close()
    return Table(columns, rows)


def open_dump(path: Path) -> Dump:
    """Return a file with its rows."""
    rows: list[OldRow | OldStack] = []

    def keep(row: Any, begin: int) -> None:
        name = text_of_name(row)
        if "stack_info" in name:
            rows.append(OldStack(name, row[1]))
        elif not 5 <= len(row) <= 6:
            raise DamagedRow("has neither 5 nor 6 fields")
        else:
            given = row[5] if len(row) == 6 and isinstance(row[5], list) else []
            rows.append(OldRow(name, str(row[3]), row[4], given, begin))

    read_lines(path, keep)
    directory = path.with_suffix("")
    return Dump(directory, tensors_in(directory, load_npy), rows, path.name.startswith(STACKS))


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
    return [*given[:COUNT], *[message("not_available")] * (COUNT - len(given))]


def _measured(row: OldRow, other: OldRow, dumps: tuple[Dump, Dump]) -> tuple[Any, Any, str]:
    arrays = []
    for dump, own in zip(dumps, (row, other)):
        file = f"{own.name}.npy"
        try:
            arrays.append(dump.tensors(Value(Kind.TENSOR, "", "", data_name=file)))
        except UnreadableTensor as error:
            path = dump.directory / file
            said = message("no_file", path=path) if error.missing else str(error)
            return message("not_available"), message("not_available"), said
    return measure_ptdbg(*arrays)


def advice_on(table: Table) -> str:
    """Return the advice on the first row that is not accurate, in the form of the tool's file."""
    verdict = table.columns.index(word("ptdbg", "verdict")[0])
    line, node, text = "NA", "NA", word("advice", "met")
    for number, cells in enumerate(table.rows, 2):  # the header is line 1
        name = str(cells[0])
        if cells[verdict] == "No" and word("advice", "not_random") not in name:
            phase = "backward" if "backward" in name else "forward"
            line, node = str(number), name
            text = word("advice", f"{phase}_{'input' if 'input' in name else 'output'}")
            break
    return f"Line: {line}\nSuspect Nodes: {node}\nExpert Advice: {text}\n"

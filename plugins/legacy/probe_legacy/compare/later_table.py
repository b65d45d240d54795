"""The tables of ptdbg_ascend 3.0 to 6.0: of tensors, statistics or checksums (docs/legacy.md#tables)."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from probe_core.model import Colour
from probe_core.model.columns import convert_to_float
from probe_legacy.aten_view import ATEN, find_operators
from probe_legacy.compare.dump import Cells, LegacyTable, MeasurementError, PtdbgDump, Release, load_arrays
from probe_legacy.compare.groups import OldRow, RowGroup, align_groups
from probe_legacy.compare.later_measures import (
    ROWS,
    LaterMeasurement,
    choose_colors,
    convert_to_number,
    judge_later,
    measure_later,
    repeat_text,
)
from probe_legacy.compare.table_texts import get_message, get_table_entry
from probe_legacy.reading.names import parse_ptdbg_name

Dumps = tuple[PtdbgDump, PtdbgDump]
MAX_INTEGER_BITS = 64
"""Bits of the widest whole number of a dtype."""
Rows = Sequence[tuple[OldRow, OldRow | None]]


def create_later_table(dumps: Dumps, release: Release, fuzzy: bool) -> LegacyTable:
    """Return the table of two files.

    Args:
        dumps: The files of the NPU and of the bench.
        release: The release of the table.
        fuzzy: True if the numbers of calls may differ.
    """
    make = _choose_cell_writer(dumps)(dumps, release)
    has_stacks = all(dump.has_stacks for dump in dumps)
    columns = [*get_table_entry("ptdbg", "names"), *make.columns]
    if has_stacks:
        columns.append(get_table_entry("ptdbg", "stack"))
    rule = AlikeTensorsRule(release, fuzzy=fuzzy)
    rows: list[Cells] = []
    colors: dict[int, Colour] = {}
    for group, partner in align_groups(dumps[0].iterate_groups(), dumps[1].iterate_groups(), rule):
        first = len(rows)
        for index, (row, bench_row) in enumerate(_pair_rows(group, partner)):
            cells = [*list_names(row, bench_row), *make.write_cells(row, bench_row)]
            if has_stacks:
                is_told = index == 0 and (partner is None or partner.frames is not None)
                frames = group.frames if is_told else None
                cells.append(None if frames is None else str(frames))
            rows.append(cells)
        if release >= Release.V6 and (partner is not None or make.colors_all):
            group_colors = choose_colors(columns, rows[first:])
            colors.update({first + place: color for place, color in group_colors.items()})
    _convert_columns(columns, rows)
    return LegacyTable(columns, rows, release, colors)


def _pair_rows(group: RowGroup, partner: RowGroup | None) -> Rows:
    """Return the rows of a group with those of its partner: inputs with inputs, outputs with outputs."""
    if partner is None:
        return [(row, None) for row in group.rows]
    waiting = {side: [row for row in partner.rows if ("input" in row.name) is side] for side in (True, False)}
    rows: list[tuple[OldRow, OldRow | None]] = []
    for side in (True, False):
        npu_rows = [row for row in group.rows if ("input" in row.name) is side]
        bench_rows = waiting[side]
        rows += [(row, bench_rows[place] if place < len(bench_rows) else None) for place, row in enumerate(npu_rows)]
    return rows


def list_names(row: OldRow, bench_row: OldRow | None) -> Cells:
    """Return the cells of the names, dtypes and shapes of a row and its partner."""
    missing = get_message("not_available")
    if bench_row is None:
        return [row.name, missing, row.dtype, missing, str(row.shape), missing]
    return [row.name, bench_row.name, row.dtype, bench_row.dtype, str(row.shape), str(bench_row.shape)]


class _CellWriter(ABC):
    """A kind of table.

    Args:
        dumps: Both files.
        release: The release of the table.

    Attributes:
        columns: The columns after the names, dtypes and shapes.
        colors_all: True if rows without a partner may be colored.
    """

    columns: list[str]
    colors_all = False

    def __init__(self, dumps: Dumps, release: Release) -> None:
        self.dumps, self.release = dumps, release
        names = get_table_entry("later", "statistics")[: 3 if release is Release.V3 else 4]
        self.count = len(names)
        self.statistics = [f"{side} {name}" for side in get_table_entry("later", "sides") for name in names]

    @abstractmethod
    def write_cells(self, row: OldRow, bench_row: OldRow | None) -> Cells:
        """Return the cells of these columns."""

    def iterate_statistics(self, row: OldRow, bench_row: OldRow | None) -> Iterator[object]:
        """Yield the statistics of both sides."""
        for statistics in (row.statistics, bench_row.statistics if bench_row else ()):
            yield from statistics[: self.count]
            yield from [get_message("not_available")] * (self.count - len(statistics))


class _TensorCellWriter(_CellWriter):
    """Measurements of tensors, statistics and the verdict on them."""

    colors_all = True

    def __init__(self, dumps: Dumps, release: Release) -> None:
        super().__init__(dumps, release)
        shares = get_table_entry("later", "shares") if release >= Release.V4 else []
        self._measures = len(get_table_entry("later", "metrics")) + len(shares)
        self.columns = [
            *get_table_entry("later", "metrics"),
            *shares,
            *self.statistics,
            *get_table_entry("ptdbg", "verdict"),
        ]

    def write_cells(self, row: OldRow, bench_row: OldRow | None) -> Cells:
        """Return measurements, statistics, verdict and message."""
        measured = self._measure_row(row, bench_row)
        verdict = judge_later(measured.cosine, measured.difference)
        return [*measured[: self._measures], *self.iterate_statistics(row, bench_row), verdict, measured.message]

    def _measure_row(self, row: OldRow, bench_row: OldRow | None) -> LaterMeasurement:
        if bench_row is None:
            return repeat_text(get_message("not_available"), get_message("no_bench"))
        try:
            npu_values, bench_values = load_arrays(row, bench_row, self.dumps, "no_file_later")
        except MeasurementError as error:
            return repeat_text(get_message("not_available"), str(error))
        measured = measure_later(npu_values, bench_values, self.release)
        if (
            row.name == bench_row.name
            or not npu_values.size
            or npu_values.ndim == 0
            or npu_values.shape != bench_values.shape
        ):
            return measured
        return measured._replace(message=measured.message + get_message("other_number"))


class _StatisticsCellWriter(_CellWriter):
    """Differences of statistics, and in 6.0 a warning of large ones."""

    def __init__(self, dumps: Dumps, release: Release) -> None:
        super().__init__(dumps, release)
        self._judges = release >= Release.V6
        self.columns = [*get_table_entry("later", "differences")[: self.count], *self.statistics]
        if self._judges:
            self.columns += [get_table_entry("later", "result"), get_table_entry("ptdbg", "verdict")[1]]

    def write_cells(self, row: OldRow, bench_row: OldRow | None) -> Cells:
        """Return differences, statistics and in 6.0 verdict and message."""
        statistics = list(self.iterate_statistics(row, bench_row))
        differences: Cells = []
        is_far = False
        for npu_value, bench_value in zip(statistics, statistics[self.count :]):
            if isinstance(npu_value, int | float) and isinstance(bench_value, int | float):
                differences.append(_compute_difference(npu_value, bench_value))
                npu_number, bench_number = convert_to_float(npu_value), convert_to_float(bench_value)
                is_far |= abs(npu_number - bench_number) / (
                    max(abs(npu_number), abs(bench_number)) + 1e-10
                ) > get_table_entry("later", "order")
            else:
                differences.append(get_message("not_available"))
        if not self._judges:
            return [*differences, *statistics]
        if bench_row is None:
            return [*differences, *statistics, get_message("not_available"), get_message("no_bench")]
        judgement = (get_table_entry("later", "warning"), get_table_entry("later", "warned")) if is_far else ("", "")
        return [*differences, *statistics, *judgement]


class _ChecksumCellWriter(_CellWriter):
    """Checksums and whether they are equal."""

    def __init__(self, dumps: Dumps, release: Release) -> None:
        super().__init__(dumps, release)
        self.columns = [*get_table_entry("later", "checksums"), get_table_entry("later", "result")]

    def write_cells(self, row: OldRow, bench_row: OldRow | None) -> Cells:
        """Return both checksums and whether they are equal."""
        missing = get_message("not_available")
        if bench_row is None:
            return [row.checksum or missing, missing, missing]
        verdict = get_table_entry("later", "same" if row.checksum == bench_row.checksum else "different")
        return [row.checksum, bench_row.checksum, verdict]


def _choose_cell_writer(dumps: Dumps) -> type[_CellWriter]:
    if all(dump.has_checksums for dump in dumps):
        return _ChecksumCellWriter
    return _TensorCellWriter if all(dump.directory.is_dir() for dump in dumps) else _StatisticsCellWriter


def _compute_difference(npu_value: float, bench_value: float) -> float:
    """Return the difference of two statistics, exact for whole numbers of a dtype."""
    if (
        isinstance(npu_value, int)
        and isinstance(bench_value, int)
        and max(npu_value.bit_length(), bench_value.bit_length()) <= MAX_INTEGER_BITS
    ):
        return npu_value - bench_value
    return convert_to_float(npu_value) - convert_to_float(bench_value)


def _convert_columns(columns: Sequence[str], rows: Sequence[Cells]) -> None:
    """Write whole numbers as floating-point ones in columns that hold nothing but numbers, as pandas did."""
    for place, name in enumerate(columns):
        if name.endswith(ROWS):
            cells: list[Any] = [row[place] for row in rows]
            if {int, float} == set(map(type, cells)):
                for row in rows:
                    row[place] = convert_to_number(row[place])


# -- the rule by which ptdbg_ascend 3.0 to 6.0 matched groups: names, dtypes and shapes of all rows -


_NUMBER = re.compile(r"([._])\d{1,9}\1(?=(?:forward|backward)[._])")
HALF, SINGLE, BRAIN = "torch.float16", "torch.float32", "torch.bfloat16"
Dtypes = tuple[str, ...]


class AlikeTensorsRule:
    """Groups match if the names, the dtypes and the shapes of their rows do.

    float16 matches float32 and, from 4.0 on, bfloat16. An Aten operator matches an operator of another family
    that is the same one, whatever its number and its rows.

    Args:
        release: The release of the table.
        fuzzy: True if the numbers of calls may differ.
    """

    newest_first = False

    def __init__(self, release: Release, *, fuzzy: bool) -> None:
        self._fuzzy = fuzzy
        self._mixes = [{HALF, SINGLE}] + ([{HALF, BRAIN}] if release >= Release.V4 else [])
        self._has_aten = release >= Release.V4
        self._seen: dict[Hashable, dict[Dtypes, None]] = defaultdict(dict)

    def list_labels(self, group: RowGroup) -> Sequence[Hashable]:
        """Return the labels under which a group is found."""
        names, dtypes = self._split_group(group)
        self._seen[names][dtypes] = None
        return [(names, dtypes), *(self._list_operator_labels(group, is_aten=True))]

    def list_partner_labels(self, group: RowGroup) -> Sequence[Hashable]:
        """Return the labels that a partner of the group has."""
        names, dtypes = self._split_group(group)
        wanted: list[Hashable] = [(names, others) for others in self._seen[names] if self._are_alike(dtypes, others)]
        return [*wanted, *self._list_operator_labels(group, is_aten=False)]

    def _list_operator_labels(self, group: RowGroup, *, is_aten: bool) -> Sequence[Hashable]:
        """Return labels of the operator of a group; ``is_aten`` is part of those of Aten operators."""
        name = parse_ptdbg_name(group.rows[0].name) if self._has_aten else None
        if name is None or name[0].is_module:
            return []
        family, _, operator = name[0].head.partition(".")
        operator = operator.lower()
        if family == ATEN:
            return [(is_aten, name[0].phase, api) for api in find_operators(operator)]
        return [(not is_aten, name[0].phase, operator)]

    def _split_group(self, group: RowGroup) -> tuple[Hashable, Dtypes]:
        names = [_NUMBER.sub(r"\1\1", row.name) if self._fuzzy else row.name for row in group.rows]
        shapes = [str(row.shape) for row in group.rows]
        return (tuple(names), tuple(shapes)), tuple([row.dtype for row in group.rows])

    def _are_alike(self, npu_dtypes: Dtypes, bench_dtypes: Dtypes) -> bool:
        return all(
            npu_dtype == bench_dtype or {npu_dtype, bench_dtype} in self._mixes
            for npu_dtype, bench_dtype in zip(npu_dtypes, bench_dtypes)
        )

"""The tables of the three modes as data: a list of columns, each naming what it shows.

Headers and their order are the seed's (spec/compare 7). A column's source is a dotted name:
``target.…`` and ``golden.…`` are fields of the two slots, ``row.…`` is worked out of the row,
anything else is ``metric.column`` of a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from probe_core.messages import NAN, NOT_AVAILABLE, absent, join, message
from probe_core.model import Cell, Kind, Mode, Reason, Row, Slot, Statistic, Value

NO_FILE = "-1"
LARGEST_SHEET = 1_048_500
"""Rows of one sheet, its header not counted; a longer table is split, and nothing is highlighted
(spec/compare 9 and 16)."""


@dataclass(frozen=True, slots=True)
class Column:
    """A header, where its cells come from, and how a number is written."""

    header: str
    source: str
    style: str = "plain"


def _sides(header: str, field: str, names: tuple[str, str] = ("NPU", "Bench")) -> tuple[Column, ...]:
    target, golden = names
    return (
        Column(f"{target} {header}", f"target.{field}"),
        Column(f"{golden} {header}", f"golden.{field}"),
    )


COMMON = (
    *_sides("Name", "name"),
    *_sides("Dtype", "dtype"),
    *_sides("Tensor Shape", "shape"),
    *_sides("Requires_grad", "requires_grad"),
)
STATISTICS = tuple(
    Column(f"{side} {header}", f"{source}.{header}")
    for side, source in (("NPU", "target"), ("Bench", "golden"))
    for header in ("max", "min", "mean", "l2norm")
)
CONSISTENT = Column("Requires_grad Consistent", "row.consistent")
MESSAGE = Column("Err_message", "row.message")
STACK = Column("NPU_Stack_Info", "row.stack")
DATA_NAME = Column("Data_name", "row.data_name")

COLUMNS: dict[Mode, tuple[Column, ...]] = {
    Mode.TENSOR: (
        *COMMON,
        Column("Cosine", "cosine.Cosine", "cosine"),
        Column("EucDist", "euclidean.EucDist"),
        Column("MaxAbsErr", "max_error.MaxAbsErr", "decimals"),
        Column("MaxRelativeErr", "max_error.MaxRelativeErr", "decimals"),
        Column("One Thousandth Err Ratio", "error_ratio.One Thousandth Err Ratio", "decimals"),
        Column("Five Thousandths Err Ratio", "error_ratio.Five Thousandths Err Ratio", "decimals"),
        *STATISTICS,
        CONSISTENT,
        Column("Accuracy Reached or Not", "row.label"),
        MESSAGE,
        STACK,
        DATA_NAME,
    ),
    Mode.STATISTICS: (
        *COMMON,
        *(Column(f"{name} diff", f"statistics.{name} diff") for name in ("Max", "Min", "Mean", "L2norm")),
        *(
            Column(f"{name}RelativeErr", f"statistics.{name}RelativeErr", "percent")
            for name in ("Max", "Min", "Mean", "Norm")
        ),
        *STATISTICS,
        CONSISTENT,
        Column("Result", "row.label"),
        MESSAGE,
        STACK,
    ),
    Mode.MD5: (
        *COMMON,
        Column("NPU MD5", "target.checksum"),
        Column("BENCH MD5", "golden.checksum"),
        CONSISTENT,
        Column("Result", "row.label"),
        STACK,
    ),
}

METRICS: dict[Mode, tuple[str, ...]] = {
    Mode.TENSOR: ("cosine", "euclidean", "max_error", "error_ratio"),
    Mode.STATISTICS: ("statistics",),
    Mode.MD5: ("checksum",),
}
"""The metrics behind each table."""

POLICIES: dict[Mode, str] = {
    Mode.TENSOR: "accuracy",
    Mode.STATISTICS: "statistics",
    Mode.MD5: "checksum",
}
"""The policy behind each table's verdict column."""


class Table:
    """Turns rows into cells, for the columns of one comparison."""

    def __init__(self, mode: Mode, *, stack: bool, extra: Sequence[tuple[str, str]] = ()) -> None:
        """Columns of ``mode``, with the stack or without, and ``(metric, column)`` extras behind."""
        columns = [column for column in COLUMNS[mode] if stack or column is not STACK]
        taken = {column.header for column in columns}
        for metric, name in extra:
            header = name if name not in taken else f"{metric}: {name}"
            taken.add(header)
            columns.append(Column(header, f"{metric}.{name}"))
        self.mode = mode
        self.headers = tuple(column.header for column in columns)
        self._cells = tuple(_cell_of(column, mode) for column in columns)

    def cells(self, row: Row) -> list[Cell]:
        """The cells of ``row``, one a column."""
        return [cell(row) for cell in self._cells]


def _cell_of(column: Column, mode: Mode) -> Callable[[Row], Cell]:
    where, _, what = column.source.partition(".")
    if where == "target":
        field = _FIELDS[what]
        return lambda row: NOT_AVAILABLE if row.pair.target is None else field(row.pair.target)
    if where == "golden":
        field = _FIELDS[what]
        return lambda row: NOT_AVAILABLE if row.pair.golden is None else field(row.pair.golden)
    if where == "row":
        return _ROW[what]
    style = _STYLES[column.style]

    def measured(row: Row) -> Cell:
        measurement = row.measurements[column.source]
        if measurement.reason is not None:
            return absent(measurement.reason, mode)
        value = measurement.value
        if isinstance(value, float):
            return style(value) if math.isfinite(value) or column.style == "percent" else spell(value)
        return value

    return measured


# -- cells ---------------------------------------------------------------------------------


def spell(value: Statistic) -> Cell:
    """A statistic as the tables write it (decision D17)."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return NAN
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
    if isinstance(value, int) and abs(value) >= 1 << 53:
        return str(value)  # beyond what a spreadsheet's numbers hold
    return value


def _requires_grad(value: Value) -> Cell:
    return NOT_AVAILABLE if value.requires_grad is None else str(value.requires_grad)


def _checksum(value: Value) -> Cell:
    if value.kind is Kind.NULL or value.checksum is None:
        return NOT_AVAILABLE
    return value.checksum


_FIELDS: dict[str, Callable[[Slot], Cell]] = {
    "name": lambda slot: slot.name,
    "dtype": lambda slot: slot.value.dtype,
    "shape": lambda slot: slot.value.extent,
    "requires_grad": lambda slot: _requires_grad(slot.value),
    "max": lambda slot: spell(slot.value.statistics.max),
    "min": lambda slot: spell(slot.value.statistics.min),
    "mean": lambda slot: spell(slot.value.statistics.mean),
    "l2norm": lambda slot: spell(slot.value.statistics.norm),
    "checksum": lambda slot: _checksum(slot.value),
}


def consistent(row: Row) -> bool | None:
    """Whether both sides agree on requires_grad; None for a row without partner (decision D2)."""
    target, golden = row.pair.target, row.pair.golden
    if target is None or golden is None:
        return None
    return target.value.requires_grad == golden.value.requires_grad


def _consistent_cell(row: Row) -> Cell:
    agree = consistent(row)
    return NOT_AVAILABLE if agree is None else agree


def reasons_of(row: Row) -> list[Reason]:
    """All reasons of a row but those of its mark."""
    measured = (item.reason for item in row.measurements.values())
    return [*row.notes, *(reason for reason in measured if reason), *row.verdict.reasons]


def _message(row: Row) -> Cell:
    text = join(reasons_of(row))
    marks = [message(reason) for reason in row.mark.reasons] if row.mark else []
    return "\n".join(part for part in (text, *dict.fromkeys(marks)) if part)


def _data_name(row: Row) -> Cell:
    return str([_file(row.pair.target), _file(row.pair.golden)])


def _file(slot: Slot | None) -> str:
    return NOT_AVAILABLE if slot is None else slot.value.data_name or NO_FILE


_ROW: dict[str, Callable[[Row], Cell]] = {
    "consistent": _consistent_cell,
    "label": lambda row: row.verdict.label,
    "message": _message,
    "stack": lambda row: NOT_AVAILABLE if row.stack is None else str(list(row.stack)),
    "data_name": _data_name,
}


# -- styles of numbers ---------------------------------------------------------------------


def _cosine(value: float) -> Cell:
    return round(value, 6) if value > 0.9999 else round(value, 12)


_STYLES: dict[str, Callable[[float], Cell]] = {
    "plain": lambda value: value,
    "decimals": lambda value: round(value, 12),
    "cosine": _cosine,
    "percent": lambda value: f"{value * 100}%",
}

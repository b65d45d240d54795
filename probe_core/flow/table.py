"""Cells of the result tables, derived from rows and a list of columns.

Headers and their order are those of docs/tables.md#columns.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter

from probe_core.model import Cell, Column, Kind, Measurement, Mode, Percent, Row, Slot, Statistic
from probe_core.model.messages import NAN, NOT_AVAILABLE, absent, join, message, reasons_of

NO_FILE = "-1"
OWN = "row."
"""Prefix of the sources that are derived from the row."""
LARGEST_SHEET = 1_048_500
"""Largest number of rows of one sheet, without its header; a longer table is split and not highlighted
(docs/tables.md#limits)."""

MESSAGE = Column("Err_message", "row.message")
CONSISTENT = Column("Requires_grad Consistent", "row.consistent")
STACK = Column("NPU_Stack_Info", "row.stack")
"""Columns that the core treats specially: messages, agreement and call stacks."""


def metrics_of(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the metrics that columns show, each once, in their order."""
    sources = (column.source.partition(".")[0] for column in columns)
    return tuple(dict.fromkeys(name for name in sources if name not in ("target", "golden", "row")))


class Table:
    """A converter from rows to cells, for the columns of one comparison."""

    def __init__(
        self,
        mode: Mode,
        columns: Sequence[Column],
        *,
        stack: bool,
        extra: Sequence[tuple[str, str]] = (),
        labels: Sequence[str] = (),
    ) -> None:
        """Prepare the columns.

        Args:
            mode: The kind of data in the runs.
            columns: The columns of that mode.
            stack: False to leave out the call stacks.
            extra: Further columns, as pairs of a metric and the name of its column.
            labels: Names of further policies, each of which gets a column with its labels.
        """
        columns = [column for column in columns if stack or column != STACK]
        own = [column.header for column in columns]
        named = Counter([*own, *(name for _, name in extra), *labels])
        for metric, name in extra:
            columns.append(Column(name if named[name] == 1 else f"{metric}: {name}", f"{metric}.{name}"))
        for name in labels:
            columns.append(Column(name if named[name] == 1 else f"policy: {name}", f"row.policy.{name}"))
        self.mode = mode
        self.headers = tuple(column.header for column in columns)
        sources = [column.source for column in columns]
        self._own = tuple(_own(source[len(OWN) :]) for source in sources if source.startswith(OWN))
        shown = {**_SIDE_SOURCES, **{s: None for s in sources if s.startswith(OWN)}}
        measured = [column for column in columns if column.source not in shown]
        self._measured = tuple((column.source, _show(column, mode)) for column in measured)
        self._exact = tuple(
            (column.source, _show(replace(column, style=_EXACT.get(column.style, column.style)), mode))
            for column in measured
        )
        places = {source: place for place, source in enumerate([*shown, *(c.source for c in measured)])}
        self._in_order = itemgetter(*(places[source] for source in sources))

    def cells(self, row: Row, *, all_digits: bool = False) -> Sequence[Cell]:
        """Return the cells of a row; numbers rounded as in docs/tables.md#digits, or with all digits."""
        pair, measurements = row.pair, row.measurements
        cells = [*_slot_cells(pair.target), *_slot_cells(pair.golden)]
        cells += [cell(row) for cell in self._own]
        shown = self._exact if all_digits else self._measured
        cells += [show(measurements[source]) for source, show in shown]
        ordered: Sequence[Cell] = self._in_order(cells)
        return ordered


def _show(column: Column, mode: Mode) -> Callable[[Measurement], Cell]:
    """Return the function that turns a measurement into the cell of a column."""
    style, is_percent = _STYLES[column.style], column.style == "percent"

    def show_plain(measurement: Measurement) -> Cell:
        value, reason = measurement
        if reason is not None:
            return absent(reason, mode)
        return spell(value) if type(value) is float else value

    def show(measurement: Measurement) -> Cell:
        value, reason = measurement
        if reason is not None:
            return absent(reason, mode)
        if isinstance(value, float):
            return style(value) if value - value == 0 or is_percent else spell(value)
        return value

    return show_plain if column.style == "plain" else show


# -- cells ---------------------------------------------------------------------------------


def spell(value: Statistic) -> Cell:
    """Return a statistic as the tables write it (docs/tables.md#digits)."""
    if type(value) is float and value - value == 0:  # finite, as nearly all are
        return value
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


_SIDE_FIELDS = ("name", "dtype", "shape", "requires_grad", "max", "min", "mean", "l2norm", "checksum")
_SIDE_SOURCES = {f"{side}.{field}": None for side in ("target", "golden") for field in _SIDE_FIELDS}
_NO_SLOT = (NOT_AVAILABLE,) * len(_SIDE_FIELDS)


def _slot_cells(slot: Slot | None) -> Sequence[Cell]:
    """Return the cells of one side of a row, in the order of ``_SIDE_FIELDS``."""
    if slot is None:
        return _NO_SLOT
    value = slot.value
    high, low, mean, norm = value.statistics
    lacks_checksum = value.kind is Kind.NULL or value.checksum is None
    return (
        slot.name,
        value.dtype,
        value.extent,
        NOT_AVAILABLE if value.requires_grad is None else str(value.requires_grad),
        spell(high),
        spell(low),
        spell(mean),
        spell(norm),
        NOT_AVAILABLE if lacks_checksum else value.checksum,
    )


def consistent(row: Row) -> bool | None:
    """Return True if both sides agree on requires_grad; None for a row without partner."""
    return not row.pair.requires_grad_differs if row.pair.matched else None


def _consistent_cell(row: Row) -> Cell:
    agree = consistent(row)
    return NOT_AVAILABLE if agree is None else agree


def _message(row: Row) -> Cell:
    reasons = reasons_of(row)
    if not reasons and row.mark is None:
        return ""
    text = join(reasons)
    marks = [message(reason) for reason in row.mark.reasons] if row.mark else []
    return "\n".join(part for part in (text, *dict.fromkeys(marks)) if part)


def _file(slot: Slot | None) -> str:
    return NOT_AVAILABLE if slot is None else slot.value.data_name or NO_FILE


@lru_cache(maxsize=4096)
def _frames(stack: tuple[str, ...]) -> str:
    return str(list(stack))


_ROW: dict[str, Callable[[Row], Cell]] = {
    "consistent": _consistent_cell,
    "label": lambda row: row.verdict.label,
    "message": _message,
    "stack": lambda row: NOT_AVAILABLE if row.stack is None else _frames(row.stack),
    "data_name": lambda row: str([_file(row.pair.target), _file(row.pair.golden)]),
}


def _own(name: str) -> Callable[[Row], Cell]:
    """Return the function for the cells of a column that is derived from the row."""
    policy = name.removeprefix("policy.")
    if policy == name:
        return _ROW[name]
    return lambda row: row.further[policy].label if policy in row.further else NOT_AVAILABLE


# -- styles of numbers ---------------------------------------------------------------------


def _cosine(value: float) -> Cell:
    return round(value, 6) if value > 0.9999 else round(value, 12)


_EXACT = {"decimals": "plain", "cosine": "plain"}
"""Replacements for styles that round, for files with all digits."""
_STYLES: dict[str, Callable[[float], Cell]] = {
    "plain": lambda value: value,
    "decimals": lambda value: round(value, 12),
    "cosine": _cosine,
    "percent": Percent,
}

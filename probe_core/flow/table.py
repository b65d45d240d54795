"""Cells of the result tables, derived from rows and a list of columns.

Headers and their order are those of docs/tables.md#columns.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from probe_core.model import Cell, Column, Measurement, Mode, Percent, Slot, Statistic
from probe_core.model.batches import PairSide, RowBatch
from probe_core.model.columns import FLOAT, INTEGER, MAX_EXACT, NULL, Array, Interned
from probe_core.model.messages import NAN, NOT_AVAILABLE, absent, join, message

NO_FILE = "-1"
LARGEST_RATIO = 1e300
"""Limit of ratios, so that their percentages are finite."""
NUMBER, WHOLE, PERCENT = -1, -2, -3
"""Codes of cells that show a float, an integer, and a ratio in percent."""
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
    """A converter from rows to cells; ``sources`` are the source and style of the column of each header."""

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
        self.sources = [(column.source, column.style) for column in columns]

    def columns(self, batch: RowBatch, *, all_digits: bool = False) -> list[CellColumn]:
        """Return the cells of a batch; numbers rounded as in docs/tables.md#digits, or with all digits."""
        return [self._column(batch, *source, all_digits=all_digits) for source in self.sources]

    def rows(self, batch: RowBatch, *, all_digits: bool = False) -> Iterator[Sequence[Cell]]:
        """Yield the cells of each row of a batch."""
        return zip(*(column.cells() for column in self.columns(batch, all_digits=all_digits)))

    def _column(self, batch: RowBatch, source: str, style: str, *, all_digits: bool) -> CellColumn:
        part, _, name = source.partition(".")
        if part == "row":
            return _of_row(batch, name)
        if part in ("target", "golden"):
            return _of_side(batch.target if part == "target" else batch.golden, name)
        measured = batch.results.measurements[source]
        style = _EXACT.get(style, style) if all_digits else style
        cells = [_show(item, style, self.mode) for item in measured.others[1:]]
        kind, numbers = PERCENT if style == "percent" else NUMBER, measured.numbers
        if style in _EXACT:
            numbers = np.array([_STYLES[style](number) for number in numbers.tolist()], float)
        is_shown = np.isfinite(numbers) if kind == NUMBER else (numbers >= 0) & (numbers < LARGEST_RATIO)
        codes = np.where(measured.codes == 0, kind, measured.codes - 1)
        others = np.flatnonzero((measured.codes == 0) & ~is_shown)
        codes[others] = np.arange(len(cells), len(cells) + len(others))
        cells += [_show(Measurement(number), style, self.mode) for number in numbers[others].tolist()]
        return CellColumn(codes, cells, numbers)


@dataclass(frozen=True)
class CellColumn:
    """The cells of a column.

    Attributes:
        codes: A code in ``texts``; ``NUMBER``, ``WHOLE`` or ``PERCENT`` for an entry of ``numbers``.
        texts: Cells that many rows share, or that are no numbers.
        numbers: Finite floats, integers as floats, and ratios that are not negative.
    """

    codes: Array
    texts: Sequence[Cell]
    numbers: Array | None = None

    def cells(self) -> list[Cell]:
        """Return the cell of each row."""
        texts, codes = self.texts, self.codes.tolist()
        if self.numbers is None:
            return [texts[code] for code in codes]
        return [
            texts[code] if code >= 0 else number if code == NUMBER else _NUMBERS[code](number)
            for code, number in zip(codes, self.numbers.tolist())
        ]


_NUMBERS: dict[int, Callable[[float], Cell]] = {WHOLE: int, PERCENT: Percent}


def _show(measurement: Measurement, style: str, mode: Mode) -> Cell:
    """Return the cell of a measurement."""
    value, reason = measurement
    if reason is not None:
        return absent(reason, mode)
    if isinstance(value, float) and (style == "percent" or (style != "plain" and value - value == 0)):
        return _STYLES[style](value)
    return spell(value) if isinstance(value, float) else value


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
    if isinstance(value, int) and abs(value) >= MAX_EXACT:
        return str(value)  # beyond what a spreadsheet's numbers hold
    return value


STATISTICS = ("max", "min", "mean", "l2norm")


def _of_side(side: PairSide, name: str) -> CellColumn:
    """Return a column that shows a field of the values of one side."""
    columns, present = side.columns, side.is_present
    if name in STATISTICS:
        return _of_statistic(side, STATISTICS.index(name))
    if name in ("dtype", "shape", "requires_grad"):
        codes, texts = {
            "dtype": (side.column("dtype"), columns.dtypes),
            "shape": (side.column("extent"), [text for text, _ in columns.extents]),
            "requires_grad": (side.column("grad") + 1, [NOT_AVAILABLE, "False", "True"]),
        }[name]
        return CellColumn(np.where(present, codes, len(texts)), [*texts, NOT_AVAILABLE])
    lines = side.lines[present]
    cells: list[Cell] = []
    if name == "name":
        cells += columns.row_names(lines)
    elif name == "checksum":
        recorded = ((columns.checksums[line], columns.kind[line] != NULL) for line in lines.tolist())
        cells += [text if is_value and text is not None else NOT_AVAILABLE for text, is_value in recorded]
    else:
        raise LookupError(f"a value has no field {name!r:.40}")
    codes = np.full(len(present), len(cells))
    codes[present] = np.arange(len(cells))
    return CellColumn(codes, [*cells, NOT_AVAILABLE])


def _of_statistic(side: PairSide, place: int) -> CellColumn:
    types, numbers = side.column("types")[:, place], side.column("numbers")[:, place]
    codes = np.where(types == INTEGER, WHOLE, NUMBER)
    texts = Interned()
    special = ~np.isfinite(numbers) | ((types != FLOAT) & ((types != INTEGER) | (abs(numbers) >= MAX_EXACT)))
    for line in np.flatnonzero(special & side.is_present).tolist():
        value = side.columns.statistic(int(side.lines[line]), place)
        codes[line] = texts.code(spell(value))
    codes[~side.is_present] = texts.code(NOT_AVAILABLE)
    return CellColumn(codes, texts, numbers)


def _of_row(batch: RowBatch, name: str) -> CellColumn:
    """Return a column that is derived from the rows."""
    if name == "consistent":
        codes = np.where(batch.is_matched, np.where(batch.requires_grad_differs, 1, 2), 0)
        return CellColumn(codes, (NOT_AVAILABLE, False, True))
    if name == "label" or name.startswith("policy."):
        verdicts = batch.verdicts if name == "label" else batch.results.further[name.removeprefix("policy.")]
        return CellColumn(verdicts.codes, [verdict.label for verdict in verdicts.table])
    if name == "stack":
        texts = Interned()
        codes = np.full(len(batch), texts.code(NOT_AVAILABLE))
        for number, line in batch.stack_lines.items():
            stack = batch.stack(number)
            codes[line] = 0 if stack is None else texts.code(_frames(stack))
        return CellColumn(codes, texts)
    if name == "message":
        texts = Interned()
        codes = np.full(len(batch), texts.code(""))
        for line in {*np.flatnonzero(batch.has_reason(message)).tolist(), *batch.marks}:
            codes[line] = texts.code(_message(batch, line))
        return CellColumn(codes, texts)
    if name == "data_name":
        files = [str([*map(_file, pair[:2])]) for pair in batch.pairs(0, len(batch))]
        return CellColumn(np.arange(len(batch)), files)
    raise LookupError(f"a row has no field {name!r:.40}")


def _message(batch: RowBatch, line: int) -> str:
    reasons, mark = batch.reasons(line), batch.marks.get(line)
    if not reasons and mark is None:
        return ""
    marks = [message(reason) for reason in mark.reasons] if mark else []
    return "\n".join(part for part in (join(reasons), *dict.fromkeys(marks)) if part)


def _file(slot: Slot | None) -> str:
    return NOT_AVAILABLE if slot is None else slot.value.data_name or NO_FILE


@lru_cache(maxsize=4096)
def _frames(stack: tuple[str, ...]) -> str:
    return str(list(stack))


# -- styles of numbers ---------------------------------------------------------------------


def _cosine(value: float) -> Cell:
    return round(value, 6) if value > 0.9999 else round(value, 12)


_EXACT = {"decimals": "plain", "cosine": "plain"}
"""Replacements for styles that round, for files with all digits."""
_STYLES: dict[str, Callable[[float], Cell]] = {
    "decimals": lambda value: round(value, 12),
    "cosine": _cosine,
    "percent": Percent,
}

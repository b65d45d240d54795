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
from probe_core.model.columns import FLOAT, INTEGER, MAX_EXACT_INTEGER, NULL, Array, InternTable
from probe_reporters.messages import NAN, NOT_AVAILABLE
from probe_reporters.reason_texts import ReasonTexts

NO_FILE = "-1"
MAX_RATIO = 1e300
"""Limit of ratios, so that their percentages are finite."""
NUMBER_CODE, INTEGER_CODE, PERCENT_CODE = -1, -2, -3
"""Codes of cells that show a float, an integer, and a ratio in percent."""

MESSAGE_COLUMN = Column("Err_message", "row.message")
CONSISTENT_COLUMN = Column("Requires_grad Consistent", "row.consistent")
STACK_COLUMN = Column("NPU_Stack_Info", "row.stack")
"""Columns of messages, agreement and call stacks, whose cells depend on the table."""


class Table:
    """A converter from rows to cells."""

    def __init__(
        self,
        mode: Mode,
        columns: Sequence[Column],
        texts: ReasonTexts,
        *,
        stack: bool,
        extra: Sequence[tuple[str, str]] = (),
        labels: Sequence[str] = (),
    ) -> None:
        """Prepare the columns.

        Args:
            mode: The kind of data in the runs.
            columns: The columns of that mode.
            texts: The texts of reason codes.
            stack: False to leave out the call stacks.
            extra: Further columns, as pairs of a metric and the name of its column.
            labels: Names of further policies, each of which gets a column with its labels.
        """
        columns = [column for column in columns if stack or column != STACK_COLUMN]
        headers = [column.header for column in columns]
        header_counts = Counter([*headers, *(name for _, name in extra), *labels])
        for metric, name in extra:
            columns.append(Column(name if header_counts[name] == 1 else f"{metric}: {name}", f"{metric}.{name}"))
        for name in labels:
            columns.append(Column(name if header_counts[name] == 1 else f"policy: {name}", f"row.policy.{name}"))
        self._mode, self._texts = mode, texts
        self.headers = tuple(column.header for column in columns)
        self.sources = [(column.source, column.style) for column in columns]

    def create_columns(self, batch: RowBatch, *, all_digits: bool = False) -> list[CellColumn]:
        """Return the cells of a batch; numbers rounded as in docs/tables.md#digits, or with all digits."""
        return [self._create_column(batch, *source, all_digits=all_digits) for source in self.sources]

    def iterate_rows(self, batch: RowBatch, *, all_digits: bool = False) -> Iterator[Sequence[Cell]]:
        """Yield the cells of each row of a batch."""
        return zip(*(column.get_cells() for column in self.create_columns(batch, all_digits=all_digits)))

    def _create_column(self, batch: RowBatch, source: str, style: str, *, all_digits: bool) -> CellColumn:
        part, _, name = source.partition(".")
        if part == "row":
            return _create_row_column(batch, name, self._texts)
        if part in ("target", "golden"):
            return _create_side_column(batch.target if part == "target" else batch.golden, name)
        measured = batch.results.measurements[source]
        style = _EXACT_STYLES.get(style, style) if all_digits else style
        cells = [self._format_measurement(item, style) for item in measured.others[1:]]
        kind, numbers = PERCENT_CODE if style == "percent" else NUMBER_CODE, measured.numbers
        if style in _EXACT_STYLES:
            numbers = np.array([_STYLES[style](number) for number in numbers.tolist()], float)
        is_shown = np.isfinite(numbers) if kind == NUMBER_CODE else (numbers >= 0) & (numbers < MAX_RATIO)
        codes = np.where(measured.codes == 0, kind, measured.codes - 1)
        others = np.flatnonzero((measured.codes == 0) & ~is_shown)
        codes[others] = np.arange(len(cells), len(cells) + len(others))
        cells += [self._format_measurement(Measurement(number), style) for number in numbers[others].tolist()]
        return CellColumn(codes, cells, numbers)

    def _format_measurement(self, measurement: Measurement, style: str) -> Cell:
        value, reason = measurement
        if reason is not None:
            return self._texts.format_missing_cell(reason, self._mode)
        if isinstance(value, float) and (style == "percent" or (style != "plain" and value - value == 0)):
            return _STYLES[style](value)
        return format_statistic(value) if isinstance(value, float) else value


@dataclass(frozen=True)
class CellColumn:
    """The cells of a column.

    Attributes:
        codes: A code in ``texts``; ``NUMBER_CODE``, ``INTEGER_CODE`` or ``PERCENT_CODE`` for an entry of ``numbers``.
        texts: Cells that many rows share, or that are not numbers.
        numbers: Finite floats, integers as floats, and ratios that are not negative.
    """

    codes: Array
    texts: Sequence[Cell]
    numbers: Array | None = None

    def get_cells(self) -> list[Cell]:
        """Return the cell of each row."""
        texts, codes = self.texts, self.codes.tolist()
        if self.numbers is None:
            return [texts[code] for code in codes]
        return [
            texts[code] if code >= 0 else number if code == NUMBER_CODE else _NUMBER_CONVERTERS[code](number)
            for code, number in zip(codes, self.numbers.tolist())
        ]


_NUMBER_CONVERTERS: dict[int, Callable[[float], Cell]] = {INTEGER_CODE: int, PERCENT_CODE: Percent}


# -- cells ---------------------------------------------------------------------------------


def format_statistic(value: Statistic) -> Cell:
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
    if isinstance(value, int) and abs(value) >= MAX_EXACT_INTEGER:
        return str(value)  # beyond what a spreadsheet's numbers hold
    return value


STATISTICS = ("max", "min", "mean", "l2norm")


def _create_side_column(side: PairSide, name: str) -> CellColumn:
    """Return a column that shows a field of the values of one side."""
    columns, present = side.columns, side.is_present
    if name in STATISTICS:
        return _create_statistic_column(side, STATISTICS.index(name))
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


def _create_statistic_column(side: PairSide, place: int) -> CellColumn:
    types, numbers = side.column("types")[:, place], side.column("numbers")[:, place]
    codes = np.where(types == INTEGER, INTEGER_CODE, NUMBER_CODE)
    texts = InternTable()
    special = ~np.isfinite(numbers) | ((types != FLOAT) & ((types != INTEGER) | (abs(numbers) >= MAX_EXACT_INTEGER)))
    for line in np.flatnonzero(special & side.is_present).tolist():
        value = side.columns.statistic(int(side.lines[line]), place)
        codes[line] = texts.encode(format_statistic(value))
    codes[~side.is_present] = texts.encode(NOT_AVAILABLE)
    return CellColumn(codes, texts, numbers)


def _create_row_column(batch: RowBatch, name: str, reason_texts: ReasonTexts) -> CellColumn:
    """Return a column that is derived from the rows."""
    if name == "consistent":
        codes = np.where(batch.is_matched, np.where(batch.requires_grad_differs, 1, 2), 0)
        return CellColumn(codes, (NOT_AVAILABLE, False, True))
    if name == "label" or name.startswith("policy."):
        verdicts = batch.verdicts if name == "label" else batch.results.further[name.removeprefix("policy.")]
        return CellColumn(verdicts.codes, [verdict.label for verdict in verdicts.table])
    if name == "stack":
        texts = InternTable()
        codes = np.full(len(batch), texts.encode(NOT_AVAILABLE))
        for number, line in batch.stack_lines.items():
            stack = batch.stack(number)
            codes[line] = 0 if stack is None else texts.encode(_format_frames(stack))
        return CellColumn(codes, texts)
    if name == "message":
        texts = InternTable()
        codes = np.full(len(batch), texts.encode(""))
        for line in {*np.flatnonzero(batch.has_reason(reason_texts.format_message)).tolist(), *batch.marks}:
            codes[line] = texts.encode(_format_message(batch, line, reason_texts))
        return CellColumn(codes, texts)
    if name == "data_name":
        files = [str([*map(_get_file, pair[:2])]) for pair in batch.pairs(0, len(batch))]
        return CellColumn(np.arange(len(batch)), files)
    raise LookupError(f"a row has no field {name!r:.40}")


def _format_message(batch: RowBatch, line: int, texts: ReasonTexts) -> str:
    reasons, mark = batch.reasons(line), batch.marks.get(line)
    if not reasons and mark is None:
        return ""
    marks = [texts.format_message(reason) for reason in mark.reasons] if mark else []
    return "\n".join(part for part in (texts.join_messages(reasons), *dict.fromkeys(marks)) if part)


def _get_file(slot: Slot | None) -> str:
    return NOT_AVAILABLE if slot is None else slot.value.data_name or NO_FILE


@lru_cache(maxsize=4096)
def _format_frames(stack: tuple[str, ...]) -> str:
    return str(list(stack))


# -- styles of numbers ---------------------------------------------------------------------


def _round_cosine(value: float) -> Cell:
    return round(value, 6) if value > 0.9999 else round(value, 12)


_EXACT_STYLES = {"decimals": "plain", "cosine": "plain"}
"""Replacements for styles that round, for files with all digits."""
_STYLES: dict[str, Callable[[float], Cell]] = {
    "decimals": lambda value: round(value, 12),
    "cosine": _round_cosine,
    "percent": Percent,
}

"""Rows of cells as text in pure Python; ``_lines.cpp`` gives the same bytes faster."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import islice

from probe_core.model import Cell, Percent
from probe_core.model.columns import Array
from probe_reporters.table import INTEGER_CODE, NUMBER_CODE, PERCENT_CODE, CellColumn

Prepare = Callable[[str], str]
"""A function applied to each text before it is quoted or escaped."""

_BLANKS = (" ", "\n", "\t")


class _LineBuffer:
    """A file object that keeps the last line of a csv writer."""

    def write(self, text: str) -> int:
        self.text = text
        return len(text)


_line = _LineBuffer()
_csv = csv.writer(_line)


def csv_line(cells: Sequence[Cell], prepare: Prepare) -> bytes:
    """Return a line of csv in UTF-8, as ``csv.writer`` writes it."""
    _csv.writerow([prepare(cell) if isinstance(cell, str) else cell for cell in cells])
    return _line.text.encode()


def csv_rows(columns: list[tuple[Array, Sequence[Cell], Array | None]], count: int, prepare: Prepare) -> bytes:
    """Return the lines of rows that are given as columns.

    Args:
        columns: The codes, texts and numbers of each ``CellColumn``.
        count: The number of rows.
        prepare: Function applied to each text before it is quoted.
    """
    fields = [_format_fields(CellColumn(*column), prepare) for column in columns]
    lines = [",".join(row) or '""' for row in zip(*fields)]  # csv quotes a lone empty field
    return "".join([f"{line}\r\n" for line in lines]).encode()


def _format_fields(column: CellColumn, prepare: Prepare) -> Iterable[str]:
    """Return the cells of a column as csv has them; only texts can need quotes."""
    texts = [csv_line([text, None], prepare).decode()[:-3] for text in column.texts]
    if column.numbers is None:
        return map(texts.__getitem__, column.codes.tolist())
    numbers = column.numbers.tolist()
    if (column.codes == NUMBER_CODE).all():
        return map(repr, numbers)
    return [
        texts[code] if code >= 0 else repr(number) if code == NUMBER_CODE else _FIELD_FORMATTERS[code](number)
        for code, number in zip(column.codes.tolist(), numbers)
    ]


_FIELD_FORMATTERS: dict[int, Callable[[float], str]] = {
    INTEGER_CODE: lambda number: str(int(number)),
    PERCENT_CODE: lambda ratio: f"{ratio * 100}%",
}


def sheet_rows(
    columns: list[tuple[Array, Sequence[Cell], Array | None]],
    start: int,
    stop: int,
    first: int,
    styles: list[Sequence[int]],
    colors: bytes,
    prepare: Prepare,
) -> bytes:
    """Return the ``<row>`` elements of rows that are given as columns.

    Args:
        columns: The codes, texts and numbers of each ``CellColumn``.
        start: The first row.
        stop: The row after the last.
        first: The number of the first row in the worksheet, counted from 1.
        styles: The styles of all columns, for each colour.
        colors: The place of each row's colour in ``styles``.
        prepare: Function applied to each text before it is escaped.
    """
    cells = zip(*(CellColumn(*column).get_cells() for column in columns))
    rows = zip(range(first, first + stop - start), islice(cells, start, stop), colors[start:stop])
    return b"".join(
        styled_row([_convert_percent(cell) for cell in row], number, styles[color], prepare)
        for number, row, color in rows
    )


def _convert_percent(cell: Cell) -> Cell:
    return cell.ratio if type(cell) is Percent and math.isfinite(cell.ratio) else cell


def sheet_row(cells: Sequence[Cell], number: int, style: int, prepare: Prepare) -> bytes:
    """Return the ``<row>`` of a worksheet in UTF-8.

    Args:
        cells: The cells of the row.
        number: The number of the row, counted from 1.
        style: The number of the style of all cells; 0 for none.
        prepare: Function applied to each text before it is escaped.
    """
    return styled_row(cells, number, (style,) * len(cells), prepare)


def styled_row(cells: Sequence[Cell], number: int, styles: Sequence[int], prepare: Prepare) -> bytes:
    """Return the ``<row>`` of a worksheet whose cells have a style each; see ``sheet_row``."""
    parts = [f'<row r="{number}">']
    for column, (cell, style) in enumerate(zip(cells, styles)):
        look = f' s="{style}"' if style else ""
        if isinstance(cell, float) and not math.isfinite(cell):
            cell = str(cell)
        start = f'<c r="{_format_column_letters(column)}{number}"{look}'
        if isinstance(cell, str):
            if text := prepare(cell):
                keeps = ' xml:space="preserve"' if text.startswith(_BLANKS) or text.endswith(_BLANKS) else ""
                escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
                parts.append(f'{start} t="inlineStr"><is><t{keeps}>{escaped}</t></is></c>')
            elif style:
                parts.append(f"{start}/>")
        elif isinstance(cell, bool):
            parts.append(f'{start} t="b"><v>{int(cell)}</v></c>')
        elif cell is not None:
            parts.append(f"{start}><v>{cell!s}</v></c>")
    parts.append("</row>")
    return "".join(parts).encode()


@lru_cache(maxsize=4096)
def _format_column_letters(column: int) -> str:
    """Return the letters of a column counted from 0: A, B, …, Z, AA."""
    letters = ""
    rest = column + 1
    while rest:
        rest, letter = divmod(rest - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return letters

"""Rows as columns of numbers and texts, compressed block by block, so that memory and page stay small.

A block is a zlib stream of: the length of its head in 4 bytes; the head, JSON; the bytes of its columns. The
head lists for each column the type of its numbers (``f4``, ``f8`` or none), the type of its codes (``u1``,
``u2``, ``u4`` or none) and the texts that the codes name for the first time. Code 0 denotes the number in
the same place, code n for the n-th text of the column. Bytes of equal significance stand together, which
makes them compress well; all are little-endian.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from probe_core.model import Cell
from probe_core.model.columns import MAX_EXACT_INTEGER

MIN_BLOCK_ROWS = 8192
"""Least number of rows of a block but the last."""
MAX_RELATIVE_ERROR = 1e-7
"""Relative error that a number of a page may have."""
COMPRESSION_LEVEL = 2
"""Compression level."""


class Columns:
    """Rows that are being collected as columns.

    Attributes:
        names: The names of the columns.
        count: Number of rows in the blocks so far; all of them once ``blocks`` was called.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.count = 0
        self._texts: list[dict[str, int]] = [{} for _ in names]
        self._cells: list[list[Cell]] = [[] for _ in names]
        self._blocks: list[str] = []

    def add(self, columns: Iterable[Sequence[Cell]]) -> None:
        """Append rows, which are given as one sequence of cells a column; floats must be finite."""
        for column_cells, cells in zip(self._cells, columns):
            column_cells += cells
        if len(self._cells[0]) >= MIN_BLOCK_ROWS:
            self._flush()

    def encode_blocks(self) -> list[str]:
        """Return all blocks, each in base64."""
        self._flush()
        return self._blocks

    def _flush(self) -> None:
        count = len(self._cells[0])
        if not count:
            return
        self.count += count
        columns = [_encode_column(values, texts) for values, texts in zip(self._cells, self._texts)]
        head = {"rows": count, "columns": [column[:3] for column in columns]}
        start = json.dumps(head, separators=(",", ":")).encode()
        data = b"".join([len(start).to_bytes(4, "little"), start, *(column[3] for column in columns)])
        self._blocks.append(base64.b64encode(zlib.compress(data, COMPRESSION_LEVEL)).decode())
        self._cells = [[] for _ in self.names]


def _encode_column(values: Sequence[Any], texts: dict[str, int]) -> tuple[str, str, list[str], bytes]:
    """Return the type of a column's numbers, that of its codes, its new texts, and its bytes."""
    text_count = len(texts)
    numbers: Sequence[Any] = values
    codes: Sequence[int] = ()
    first = values[0]
    if type(first) is str and values.count(first) == len(values):  # as columns of remarks often are
        _add_texts([first], texts)
        code_type, code_bytes = _encode_codes([texts[first]] * len(values), len(texts))
        return "", code_type, list(texts)[text_count:], code_bytes
    with suppress(KeyError):  # of a number, or of a text that the column does not know yet
        code_type, code_bytes = _encode_codes(list(map(texts.__getitem__, values)), text_count)
        return "", code_type, [], code_bytes
    kinds = set(map(type, values))
    if int in kinds and not _are_whole(values, kinds):
        values = [str(value) if type(value) is int and abs(value) > MAX_EXACT_INTEGER else value for value in values]
        kinds, numbers = set(map(type, values)), values
    if kinds <= {float, int}:
        pass
    elif kinds & {float, int}:
        is_number = [type(value) is float or type(value) is int for value in values]
        others = [_format_cell(value) for value, number in zip(values, is_number) if not number]
        _add_texts(others, texts)
        codes = [0 if number else texts[_format_cell(value)] for value, number in zip(values, is_number)]
        numbers = [value if number else 0.0 for value, number in zip(values, is_number)]
    else:
        numbers = ()
        values = values if kinds == {str} else list(map(_format_cell, values))
        _add_texts(values, texts)
        codes = list(map(texts.__getitem__, values))
    number_type, number_bytes = _encode_numbers(numbers)
    code_type, code_bytes = _encode_codes(codes, len(texts))
    return number_type, code_type, list(texts)[text_count:], number_bytes + code_bytes


def _are_whole(values: Sequence[Any], kinds: set[type]) -> bool:
    """Return True if no integer among numbers is too large for a float."""
    return kinds <= {float, int} and min(values) >= -MAX_EXACT_INTEGER and max(values) <= MAX_EXACT_INTEGER


def _add_texts(values: Sequence[str], texts: dict[str, int]) -> None:
    """Give each new text the next code."""
    for text in dict.fromkeys(values):
        texts.setdefault(text, len(texts) + 1)


def _format_cell(value: Any) -> str:
    return "" if value is None else str(value)


def _encode_numbers(values: Sequence[Any]) -> tuple[str, bytes]:
    """Return the type and the bytes of numbers; in 4 bytes each if that keeps seven digits of all."""
    if not values:
        return "", b""
    wide = np.array(values, "<f8")
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype("<f4")
        is_near = np.abs(narrow - wide) <= MAX_RELATIVE_ERROR * np.abs(wide)
    return ("f4", _split_planes(narrow)) if is_near.all() else ("f8", _split_planes(wide))


def _encode_codes(values: Sequence[int], largest: int) -> tuple[str, bytes]:
    if not values:
        return "", b""
    if largest < 1 << 8:
        return "u1", bytes(values)
    size = 2 if largest < 1 << 16 else 4
    return f"u{size}", _split_planes(np.array(values, f"<u{size}"))


def _split_planes(array: np.ndarray[Any, Any]) -> bytes:
    """Return the bytes of an array, those of equal significance together."""
    planes: bytes = array.view(np.uint8).reshape(len(array), array.itemsize).T.tobytes()
    return planes

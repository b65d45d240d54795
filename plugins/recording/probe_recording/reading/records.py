"""Ordinary records in columns, read by compiled code if it was built (``_records.cpp``)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from types import ModuleType
from typing import NamedTuple

import numpy as np

from probe_core import engine
from probe_core.model import Side
from probe_core.model.columns import Array, InternTable, ValueColumns, format_suffix

_SIDES = (Side.INPUT, Side.PARAMETERS, Side.OUTPUT)
_OTHER_EXTENTS: dict[str, tuple[str, None]] = {"s": ("[]", None), "n": ("None", None)}
"""Extents of scalars and of null, as the compiled code spells them."""


@cache
def load_compiled_reader() -> ModuleType | None:
    """Return the compiled reader; None to read all records by Python."""
    return engine.import_compiled("probe_recording._records")


class Records(NamedTuple):
    """Consecutive records of a file.

    Attributes:
        values: Their values.
        begins: The offset of each record in the text.
        ends: The offset of the byte after it.
        end: The offset of the name of the next record.
    """

    values: ValueColumns
    begins: list[int]
    ends: list[int]
    end: int


def read_ordinary(text: str, at: int) -> Records | None:
    """Return the ordinary records of a text from ``at`` on; None if the first record is not ordinary.

    Args:
        text: The bytes of a file as Latin-1.
        at: The offset of the name of a record, in quotes.
    """
    module = load_compiled_reader()
    if module is None:
        return None
    (
        end, names, begins, ends, counts, places, place, kinds, dtypes, dtype, shapes, shape, grads, types,
        texts, numbers, checksums, checksum, data_names, data_name,
    ) = module.scan(text, at)  # fmt: skip
    if not names:
        return None
    starts = array("q", accumulate(np.frombuffer(counts, np.int32).tolist(), initial=0))
    sides = [(_SIDES[int(entry[0])], entry[1:]) for entry in places]
    values = ValueColumns(
        names,
        starts,
        (),
        [(format_suffix(side, path), side, path) for side, path in sides],
        dtypes,
        [_OTHER_EXTENTS.get(text) or _parse_extent(text) for text in shapes],
        texts,
        [],
        np.frombuffer(place, np.int32),
        np.frombuffer(kinds, np.uint8),
        np.frombuffer(dtype, np.int32),
        np.frombuffer(shape, np.int32),
        np.frombuffer(grads, np.int8),
        np.full(starts[-1], -1, np.int32),
        np.frombuffer(types, np.uint8).reshape(-1, 4),
        np.frombuffer(numbers, np.float64).reshape(-1, 4),
        _decode_texts(checksums, np.frombuffer(checksum, np.int32)),
        {},
        {},
        {},
        {},
    )
    _set_data_names(values, _decode_texts(data_names, np.frombuffer(data_name, np.int32)))
    return Records(values, np.frombuffer(begins, np.int64).tolist(), np.frombuffer(ends, np.int64).tolist(), end)


def _set_data_names(values: ValueColumns, data_names: Sequence[str | None]) -> None:
    """Set the names of all data, which are those of the rows as well, without the file's suffix."""
    endings = InternTable()
    lines = [line for line, name in enumerate(data_names) if name is not None]
    data = values.data.copy()
    for line, name in zip(lines, values.row_names(np.array(lines, int))):
        data_name = str(data_names[line])
        row_name = data_name.rpartition(".")[0] or data_name
        if row_name != name:
            values.names[line] = row_name
        data[line] = endings.encode(data_name[len(row_name) :])
    values.data, values.endings = data, endings


def _parse_extent(text: str) -> tuple[str, tuple[int, ...]]:
    sizes = tuple(map(int, filter(None, text[1:].split(","))))
    return str([*sizes]), sizes


def _decode_texts(table: list[str], codes: Array) -> list[str | None]:
    entries: list[str | None] = [*table, None]
    return [entries[code] for code in codes.tolist()]

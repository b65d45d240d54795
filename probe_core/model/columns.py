"""Recorded values as columns with one line per value, and ``Slot`` views of single lines."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from probe_core.model.values import OMISSIONS, Kind, Record, Side, Slot, Statistic, Statistics, Transfer, Value

Array = np.ndarray[Any, Any]

SIDES, KINDS = tuple(Side), tuple(Kind)
"""Sides and kinds by their codes."""
TENSOR, SCALAR, NULL = map(KINDS.index, (Kind.TENSOR, Kind.SCALAR, Kind.NULL))
NONE, FLOAT, INTEGER, BOOLEAN, TEXT, BIG_INTEGER = range(6)
"""Type codes of statistics. ``BIG_INTEGER`` is an integer that float64 does not hold."""
MAX_EXACT_INTEGER = 1 << 53
"""Largest magnitude up to which float64 holds all integers."""

_TYPE_CODES = {type(None): NONE, float: FLOAT, int: INTEGER, bool: BOOLEAN, str: TEXT}
_ALL_FLOATS = [FLOAT] * 4
_SIDES_WITHOUT_NAME = (Side.DEBUG, Side.PARAMETERS_GRAD)


class InternTable(list[Any]):
    """A table of distinct items, which columns refer to by their codes."""

    def __init__(self) -> None:
        super().__init__()
        self._codes: dict[Any, int] = {}

    def encode(self, item: Any) -> int:
        """Return the code of an item, which is added if it is new."""
        code = self._codes.get(item)
        if code is None:
            code = self._codes[item] = len(self)
            self.append(item)
        return code


@dataclass(eq=False)
class ValueColumns:
    """The recorded values of a run as columns, in the order of the run.

    Attributes:
        keys: The names of the records.
        starts: The line of each record's first value, then the number of lines.
        signatures: The hash of the row names of each record.
        place: Codes in ``places``, which hold the suffix of the row name, the side and the path.
        kind: Codes in ``KINDS``.
        dtype: Codes in ``dtypes``.
        extent: Codes in ``extents``, which hold the text of the shape cell and the dimensions.
        grad: ``requires_grad`` as 0 or 1; -1 if not recorded.
        types: Type codes of maximum, minimum, mean and norm, of shape (lines, 4).
        numbers: The same as float64, inf beyond its range; codes in ``texts`` for texts, and 0 for None.
        checksums: The checksums; None for lines without one.
        data: Codes in ``endings``, the part of the data name after the row name; -1 if no data is stored.
        names: The names of rows that are not composed of record and place, by line.
        data_names: The names of data that do not begin with the name of their row, by line.
        exact: The integers of type ``BIG_INTEGER``, by line and statistic.
        transfers: Point-to-point transfers, by line.
        omissions: The reasons for which values are not to be compared, by line.
    """

    keys: Sequence[str]
    starts: Sequence[int]
    signatures: Sequence[int]
    places: list[tuple[str, Side, str]]
    dtypes: list[str]
    extents: list[tuple[str, tuple[int, ...] | None]]
    texts: list[str]
    endings: list[str]
    place: Array
    kind: Array
    dtype: Array
    extent: Array
    grad: Array
    data: Array
    types: Array
    numbers: Array
    checksums: Sequence[str | None]
    names: dict[int, str]
    data_names: dict[int, str]
    exact: dict[tuple[int, int], int]
    transfers: dict[int, Transfer]
    omissions: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.place)

    @cached_property
    def record_of(self) -> Array:
        """The index of the record of each line."""
        starts = np.asarray(self.starts)
        return np.repeat(np.arange(len(starts) - 1), np.diff(starts))

    @cached_property
    def side(self) -> Array:
        """Codes in ``SIDES``."""
        return np.array([SIDES.index(side) for _, side, _ in self.places] or [0], np.uint8)[self.place]

    @cached_property
    def has_checksum(self) -> Array:
        """True for lines with a checksum."""
        return np.array([checksum is not None for checksum in self.checksums], bool)

    @cached_property
    def omission(self) -> Array:
        """The place of each line's reason in ``OMISSIONS``, counted from 1; 0 for values to compare."""
        codes = np.zeros(len(self), np.uint8)
        for line, code in self.omissions.items():
            codes[line] = OMISSIONS.index(code) + 1
        return codes

    def row_names(self, lines: Array) -> list[str]:
        """Return the names of the rows of lines."""
        keys, suffixes = self.keys, [suffix for suffix, _, _ in self.places]
        records, places = self.record_of[lines].tolist(), self.place[lines].tolist()
        names = [keys[record] + suffixes[place] for record, place in zip(records, places)]
        if self.names:
            return [self.names.get(line, name) for line, name in zip(lines.tolist(), names)]
        return names

    def slots(self, lines: Array) -> list[Slot]:
        """Return views of lines."""
        names, places = self.row_names(lines), self.places
        columns = (
            column[lines].tolist() for column in (self.place, self.kind, self.dtype, self.extent, self.grad, self.data)
        )
        slots: list[Slot] = []
        for line, name, types, numbers, place, kind, dtype, extent, grad, data in zip(
            lines.tolist(), names, self.types[lines].tolist(), self.numbers[lines].tolist(), *columns
        ):
            if types != _ALL_FLOATS:
                numbers = [self.statistic(line, place) for place in range(4)]
            text, shape = self.extents[extent]
            value = Value(
                KINDS[kind],
                self.dtypes[dtype],
                text,
                shape,
                Statistics._make(numbers),
                self.checksums[line],
                None if grad < 0 else grad == 1,
                None if data < 0 else self.data_names.get(line, name + self.endings[data]),
                self.transfers.get(line),
                self.omissions.get(line, ""),
            )
            _, side, path = places[place]
            slots.append(Slot(name, side, path, value))
        return slots

    def statistic(self, line: int, place: int) -> Statistic:
        """Return the maximum, minimum, mean or norm of a line, for 0 to 3, as it was recorded."""
        kind, number = self.types[line, place], float(self.numbers[line, place])
        if kind == BIG_INTEGER:
            return self.exact[line, place]
        if kind == INTEGER:
            return int(number)
        if kind == TEXT:
            return self.texts[int(number)]
        return None if kind == NONE else number == 1 if kind == BOOLEAN else number

    def record(self, index: int) -> Record:
        """Return a view of the record at ``index``."""
        lines = np.arange(self.starts[index], self.starts[index + 1])
        return Record(index, self.keys[index], tuple(self.slots(lines)))


class ColumnsBuilder:
    """Columns that are being filled, record by record."""

    def __init__(self) -> None:
        self.starts, self.signatures = array("q", [0]), array("q")
        self.has_checksum = False
        self._keys: list[str] = []
        self._key, self._row_names = "", list[str]()
        self._places, self._dtypes, self._extents = InternTable(), InternTable(), InternTable()
        self._texts, self._endings = InternTable(), InternTable()
        self._place, self._dtype, self._extent, self._data = (array("i") for _ in range(4))
        self._kind, self._grad = bytearray(), array("b")
        self._types, self._numbers = bytearray(), array("d")
        self._checksums: list[str | None] = []
        self._names: dict[int, str] = {}
        self._data_names: dict[int, str] = {}
        self._exact: dict[tuple[int, int], int] = {}
        self._transfers: dict[int, Transfer] = {}
        self._omissions: dict[int, str] = {}
        self._codes: dict[tuple[Side, str], int] = {}

    def begin(self, key: str) -> None:
        """Begin a record."""
        self._key = key
        self._row_names.clear()

    def end(self) -> None:
        """End a record."""
        self._keys.append(self._key)
        self.starts.append(len(self._checksums))
        self.signatures.append(hash(tuple(self._row_names)))

    def add(self, side: Side, path: str, value: Value, name: str | None = None) -> None:
        """Append a value to the current record.

        Args:
            side: The side of the value within its record.
            path: The path of the value within its side.
            value: The value.
            name: The name of its row; None for that of the tensor file, or else record, side and path.
        """
        kind, dtype, extent, shape, statistics, checksum, grad, data_name, transfer, omission = value
        line, place = len(self._checksums), self._codes.get((side, path))
        if place is None:
            place = self._codes[side, path] = self._places.encode((format_suffix(side, path), side, path))
        composed = self._key + self._places[place][0]
        if name is None:
            name = composed if data_name is None else data_name.rpartition(".")[0] or data_name
        if name != composed:
            self._names[line] = name
        self._row_names.append(name)
        self._place.append(place)
        self._kind.append(KINDS.index(kind))
        self._dtype.append(self._dtypes.encode(dtype))
        self._extent.append(self._extents.encode((extent, shape)))
        self._grad.append(-1 if grad is None else grad)
        self._data.append(-1 if data_name is None else self._endings.encode(data_name.removeprefix(name)))
        if data_name is not None and not data_name.startswith(name):
            self._data_names[line] = data_name
        self._checksums.append(checksum)
        if checksum is not None and kind is Kind.TENSOR:
            self.has_checksum = True
        if transfer is not None:
            self._transfers[line] = transfer
        if omission:
            self._omissions[line] = omission
        self._add_statistics(line, statistics)

    def _add_statistics(self, line: int, statistics: Statistics) -> None:
        high, low, mean, norm = statistics
        if type(high) is type(low) is type(mean) is type(norm) is float:  # as in most lines
            self._types += b"\1\1\1\1"
            self._numbers.extend(statistics)  # type: ignore[arg-type]
        else:
            for place, item in enumerate(statistics):
                self._add_statistic(line, place, item)

    def _add_statistic(self, line: int, place: int, item: Statistic) -> None:
        item = item.item() if isinstance(item, np.generic) else item
        kind, number = _TYPE_CODES[type(item)], 0.0
        if isinstance(item, str):
            number = self._texts.encode(item)
        elif item is not None:
            number = convert_to_float(item)
        if type(item) is int and not -MAX_EXACT_INTEGER <= item <= MAX_EXACT_INTEGER:
            kind, self._exact[line, place] = BIG_INTEGER, item
        self._types.append(kind)
        self._numbers.append(number)

    def __len__(self) -> int:
        return len(self._checksums)

    def finish(self) -> ValueColumns:
        """Return the columns, which share the memory of the builder."""
        integers = (self._place, self._dtype, self._extent, self._data)
        place, dtype, extent, data = (np.frombuffer(column, np.intc) for column in integers)
        return ValueColumns(
            self._keys,
            self.starts,
            self.signatures,
            self._places,
            self._dtypes,
            self._extents,
            self._texts,
            self._endings,
            place,
            np.frombuffer(self._kind, np.uint8),
            dtype,
            extent,
            np.frombuffer(self._grad, np.int8),
            data,
            np.frombuffer(self._types, np.uint8).reshape(-1, 4),
            np.frombuffer(self._numbers, np.float64).reshape(-1, 4),
            self._checksums,
            self._names,
            self._data_names,
            self._exact,
            self._transfers,
            self._omissions,
        )


def format_suffix(side: Side, path: str) -> str:
    """Return the part of a row name after the name of the record."""
    head = "" if side in _SIDES_WITHOUT_NAME else f".{side.value}"
    return f"{head}.{path}" if path else head


def create_columns(records: Iterable[Record]) -> ValueColumns:
    """Return the values of records as columns."""
    builder = ColumnsBuilder()
    for record in records:
        builder.begin(record.key)
        for slot in record.slots:
            builder.add(slot.side, slot.path, slot.value, slot.name)
        builder.end()
    return builder.finish()


def convert_to_float(value: float) -> float:
    """Return a number as float64; one beyond the range of float64 is inf or -inf."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf

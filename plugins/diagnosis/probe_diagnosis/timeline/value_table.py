"""Comparisons of values as columns, one line per value."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from probe_core.model import Drift, Quantity
from probe_core.model.columns import MAX_EXACT_INTEGER, SIDES, Array, InternTable
from probe_diagnosis.timeline.compared_calls import (
    Basis,
    DifferenceKind,
    ValueComparison,
    ValueState,
)
from probe_diagnosis.timeline.evidence import format_drift

LINE = np.dtype(
    [
        ("suffix", np.int32), ("row", np.int64), ("side", np.uint8), ("state", np.uint8), ("basis", np.uint8),
        ("quantity", np.uint8), ("flags", np.uint8), ("kind", np.uint8), ("distance", float),
        ("scale", float), ("noise", float), ("jump", float),
        ("explained_distance", float), ("reference_distance_ratio", float),
    ]
)  # fmt: skip
"""A line of a table: the fields of ``ValueComparison``, with texts as codes."""
(
    IS_SCALAR,
    BECOMES_NON_FINITE,
    HAS_NON_FINITE,
    HAS_MASKED_DIFFERENCE,
    IS_EQUAL,
    IS_IN_REGION,
    REQUIRES_OTHER_GRADIENT,
    IS_EXCUSED,
) = (1 << bit for bit in range(8))
"""Bits of the field ``flags``."""
NO_QUANTITY = 255
"""Quantity of a line whose evidence is not a distance."""
COMPRESSION_LEVEL = 1
"""Compression level of lines that are sent to other processes and written to the journal."""
NO_NAME = -1
"""Suffix of a line whose row name does not begin with the key of its call."""
STATES = tuple(ValueState)
STATE_CODES = {state: code for code, state in enumerate(STATES)}
SIDE_CODES = {side: code for code, side in enumerate(SIDES)}
SAME_CODE, DIFFERS_CODE, UNJUDGED_CODE = STATE_CODES.values()
IS_SOURCE = np.array([side.is_source for side in SIDES])


class ValueTable:
    """Comparisons of values, one per line.

    Attributes:
        suffixes: The ends of row names, after the keys of calls.
        names: The row names of lines whose suffix is ``NO_NAME``.
        texts: The evidence of lines that is not a distance.
        dtypes: The floating-point dtypes of both sides, as text, on lines where they differ.
        get_row_position: Function that returns the position of a row in the result file.
    """

    def __init__(self, count: int = 0) -> None:
        self._parts = [np.zeros(count, LINE)]
        self.lines["quantity"] = NO_QUANTITY
        self.suffixes = InternTable()
        self.names: dict[int, str] = {}
        self.texts: dict[int, str] = {}
        self.dtypes: dict[int, str] = {}
        self.get_row_position: Callable[[int], str] = str

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def lines(self) -> Array:
        """The lines, an array of ``LINE``."""
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    def create_comparisons(self, start: int, stop: int, key: str) -> tuple[ValueComparison, ...]:
        """Return the comparisons in consecutive lines, which belong to the call ``key``."""
        return tuple(
            self._create_comparison(line, key, fields)
            for line, fields in enumerate(self.lines[start:stop].tolist(), start)
        )

    def _create_comparison(self, line: int, key: str, fields: tuple[Any, ...]) -> ValueComparison:
        _, _, side, state, basis, quantity, flags, kind, distance, scale, noise, jump, explained, ratio = fields
        evidence = self.texts.get(line, "")
        if quantity != NO_QUANTITY:
            evidence = format_drift(Drift(distance, scale, noise, jump, quantity))
        return ValueComparison(
            self.get_row_name(line, key), SIDES[side], STATES[state], distance, scale, noise, jump,
            bool(flags & IS_SCALAR), evidence, Basis(basis),
            bool(flags & BECOMES_NON_FINITE), bool(flags & HAS_NON_FINITE),
            self.get_position(line), self.dtypes.get(line, ""), bool(flags & HAS_MASKED_DIFFERENCE), explained,
            bool(flags & IS_EQUAL), bool(flags & REQUIRES_OTHER_GRADIENT), bool(flags & IS_IN_REGION),
            DifferenceKind(kind), ratio, bool(flags & IS_EXCUSED),
        )  # fmt: skip

    def get_row_name(self, line: int, key: str) -> str:
        """Return the row name of a line of the call ``key``."""
        suffix = self.lines["suffix"].item(line)
        return self.names[line] if suffix == NO_NAME else f"{key}{self.suffixes[suffix]}"

    def get_position(self, line: int) -> str:
        """Return the position of a line in the result file; empty if it has none."""
        row = self.lines["row"].item(line)
        return self.get_row_position(row) if row >= 0 else ""

    def settle_positions(self) -> None:
        """Compute the positions of all lines, so that the result file is no longer needed."""
        self._set_positions(self._list_positions())

    def _list_positions(self) -> int | list[str]:
        """Return the positions of all lines, or the first position if they are consecutive numbers."""
        positions = [self.get_position(line) for line in range(len(self))]
        first = int(positions[0]) if positions and positions[0].isdecimal() else 0
        are_consecutive = bool(positions) and positions == [*map(str, range(first, first + len(positions)))]
        return first if are_consecutive else positions

    def _set_positions(self, positions: int | list[str]) -> None:
        self.lines["row"] = np.arange(len(self))
        if isinstance(positions, int):
            self.lines["row"] += positions
            self.get_row_position = str
        else:
            self.get_row_position = positions.__getitem__

    def set_line(self, line: int, key: str, value: ValueComparison) -> None:
        """Set a line to a value of the call ``key``, except for its row in the result file."""
        fields = self.lines[line]
        is_composed = value.row.startswith(key)
        fields["suffix"] = self.suffixes.encode(value.row[len(key) :]) if is_composed else NO_NAME
        if not is_composed:
            self.names[line] = value.row
        self.texts.pop(line, None)
        if value.evidence:
            self.texts[line] = value.evidence
        if value.dtypes:
            self.dtypes[line] = value.dtypes
        fields["quantity"] = NO_QUANTITY
        fields["side"], fields["state"] = SIDE_CODES[value.side], STATE_CODES[value.state]
        fields["basis"], fields["kind"] = value.basis, value.kind
        for name in ("distance", "scale", "noise", "jump", "explained_distance", "reference_distance_ratio"):
            fields[name] = getattr(value, name)
        bits = (
            value.is_scalar, value.becomes_non_finite, value.has_non_finite, value.has_masked_difference,
            value.is_equal, value.is_in_region, value.requires_other_gradient, value.is_excused,
        )  # fmt: skip
        fields["flags"] = sum(bit << place for place, bit in enumerate(bits))

    def extend(self, source: ValueTable, lines: Array) -> None:
        """Append lines of another table."""
        start = len(self)
        added = source.lines[lines]
        codes = np.array([*map(self.suffixes.encode, source.suffixes), NO_NAME], np.int32)
        added["suffix"] = codes[added["suffix"]]
        self._parts.append(added)
        if source.names or source.texts or source.dtypes:
            places = {line: start + place for place, line in enumerate(lines.tolist())}
            for texts, source_texts in (
                (self.names, source.names),
                (self.texts, source.texts),
                (self.dtypes, source.dtypes),
            ):
                texts.update({places[line]: text for line, text in source_texts.items() if line in places})

    def truncate(self, count: int) -> None:
        """Remove all lines after the first ``count`` lines."""
        self._parts = [self.lines[:count]]

    @property
    def is_tensor(self) -> Array:
        """True for lines of tensors."""
        is_tensor: Array = self.lines["flags"] & IS_SCALAR == 0
        return is_tensor

    @property
    def is_source(self) -> Array:
        """True for lines of values that a call receives."""
        is_source: Array = IS_SOURCE[self.lines["side"]]
        return is_source

    @property
    def differs(self) -> Array:
        """True for lines that differ."""
        differs: Array = self.lines["state"] == DIFFERS_CODE
        return differs

    def measure_multiples(self, scale: Array | float, noise: Array | float) -> Array:
        """Return ``ValueComparison.measure_multiple`` of all lines.

        Args:
            scale: The smallest magnitude by which a distance is divided.
            noise: The smallest relative distance that rounding explains.
        """
        return measure_multiples(self.lines, np.maximum(self.lines["scale"], scale), noise)

    def plain(self) -> dict[str, Any]:
        """Return the table as JSON data."""
        lines = self.lines.copy()
        lines["row"] = 0  # "positions" replaces the rows
        return {
            "count": len(self),
            "lines": base64.b64encode(zlib.compress(lines.tobytes(), COMPRESSION_LEVEL)).decode(),
            "suffixes": [*self.suffixes],
            "positions": self._list_positions(),
            **{name: [[*item] for item in getattr(self, name).items()] for name in _TEXT_FIELDS},
        }

    @classmethod
    def from_plain(cls, plain: Any) -> ValueTable:
        """Return the table that ``plain`` returned.

        Raises:
            LookupError, TypeError, ValueError: The data does not describe a table.
        """
        table = cls()
        table._parts = [_load_lines(plain["lines"], int(plain["count"]))]
        for suffix in plain["suffixes"]:
            table.suffixes.encode(_check_text(suffix))
        positions = plain["positions"]
        if type(positions) is not int:
            positions = [_check_text(position) for position in positions]
        for name in _TEXT_FIELDS:
            setattr(table, name, {int(line): _check_text(text) for line, text in plain[name]})
        lines = table.lines
        if isinstance(positions, list) and len(positions) != len(lines):
            raise ValueError("a table needs as many positions as lines")
        if isinstance(positions, int) and not 0 <= positions <= MAX_EXACT_INTEGER:
            raise ValueError("a table begins at an impossible position")
        if ((lines["quantity"] >= len(Quantity)) & (lines["quantity"] != NO_QUANTITY)).any():
            raise ValueError("a table holds an unknown quantity")
        counts = {"side": len(SIDES), "state": len(STATES), "basis": len(Basis), "kind": len(DifferenceKind)}
        for field, count in counts.items():
            if (lines[field] >= count).any():
                raise ValueError(f"a table holds an unknown {field}")
        if (lines["suffix"] >= len(table.suffixes)).any() or (lines["suffix"] < NO_NAME).any():
            raise ValueError("a table holds an unknown suffix")
        if not table.names.keys() >= {*np.flatnonzero(lines["suffix"] == NO_NAME).tolist()}:
            raise ValueError("a table holds a line without a name")
        table._set_positions(positions)
        return table


_TEXT_FIELDS = ("names", "texts", "dtypes")


def measure_multiples(lines: Array, scale: Array | float, noise: Array | float) -> Array:
    """Return the distances of lines as multiples of rounding.

    Args:
        lines: Lines of a table.
        scale: The magnitude by which each distance is divided.
        noise: The smallest relative distance that rounding explains; a line may have a larger one.

    Returns:
        0 for no difference or an unjudged value; inf for a difference that rounding cannot cause.
    """
    distance, explained = lines["distance"], lines["explained_distance"]
    line_noise, bound = lines["noise"], np.maximum(lines["noise"], noise)
    with np.errstate(all="ignore"):
        multiples: Array = np.where((scale == 0) | (bound == 0), math.inf, distance / scale / bound)
        multiples = np.where((line_noise == 0) & np.isfinite(distance), math.inf, multiples)
        if explained.any():
            multiples = np.where(explained > 0, distance / np.fmax(explained, scale * bound), multiples)
    multiples = np.fmax(multiples, 0.0)  # nan if both distance and scale are infinite
    multiples[(distance == 0) | (lines["state"] == UNJUDGED_CODE)] = 0.0
    return multiples


def find_group_maxima(numbers: Array, starts: Array) -> Array:
    """Return the largest number of each group, which ends where the next group starts; -1 for empty groups."""
    largest = np.full(len(starts) - 1, -1.0)
    is_filled = starts[1:] > starts[:-1]
    if is_filled.any():
        largest[is_filled] = np.maximum.reduceat(numbers, starts[:-1][is_filled])
    return largest


def _load_lines(text: str, count: int) -> Array:
    """Return the lines that ``ValueTable.plain`` compressed.

    Raises:
        TypeError, ValueError: The text does not contain compressed lines.
    """
    size = count * LINE.itemsize
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), size + 1)
    except zlib.error as error:
        raise ValueError(f"the lines of a table are damaged: {error}") from None
    if len(content) != size:
        raise ValueError("a table holds another number of lines")
    lines: Array = np.frombuffer(content, LINE).copy()
    return lines


def _check_text(item: Any) -> str:
    if not isinstance(item, str):
        raise TypeError(f"a table needs texts, not {type(item).__name__}")
    return item


def build_call_table(key: str, values: Sequence[ValueComparison]) -> ValueTable:
    """Return a table of the values of one call."""
    table = ValueTable(len(values))
    positions = [value.position for value in values]
    for line, value in enumerate(values):
        table.set_line(line, key, value)
    table.lines["row"] = np.arange(len(values))
    table.get_row_position = positions.__getitem__
    return table

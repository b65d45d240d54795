"""Conversion of fields in the rows of older tools to values of probe, with checks of each field."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from probe_recording.api import leaf_of

from probe_core.model import Kind, Statistics, Value
from probe_legacy.reading.lines import MAX_NAME_LENGTH, DamagedRow

MAX_DIMENSIONS = 64
_SCALAR = re.compile(r"<class '(int|float|bool|complex|str)'>$")
_DTYPE = re.compile(r"[\w.]{1,60}$")
NUMBER_TYPES = frozenset({int, float, bool})
new_tuple = tuple.__new__
"""Constructor of a named tuple from a tuple of all fields, which takes half the time of the class itself."""


def get_row_text(row: Any) -> str:
    """Return the text in the first field of a row.

    Raises:
        DamagedRow: The row is not a list, or its first field is not a text of a valid length.
    """
    if type(row) is not list or len(row) < 2:
        raise DamagedRow("is not a list of two fields or more")
    name = row[0]
    if type(name) is not str or not 0 < len(name) <= MAX_NAME_LENGTH:
        raise DamagedRow(f"has no name of 1 to {MAX_NAME_LENGTH} characters")
    return name


def read_row_name(row: Any) -> str:
    """Return the name of a row, which must be a valid file name.

    Raises:
        DamagedRow: The row has no name, or its name is not a valid file name.
    """
    name = get_row_text(row)
    if "/" in name or "\\" in name or "\0" in name:
        raise DamagedRow("has a name that no file can have")
    return name


def parse_scalar(dtype: Any, statistics: Any) -> Value | None:
    """Return the value of a row that describes a Python number or text; None if its dtype is a tensor's.

    Args:
        dtype: The field with the dtype, ``<class 'int'>`` for an int.
        statistics: The list of statistics; each of them is the value.
    """
    match = _SCALAR.match(dtype) if type(dtype) is str and dtype.startswith("<") else None
    if match is None:
        return None
    value = statistics[0] if isinstance(statistics, list) and statistics else None
    if value is not None and type(value) not in (*NUMBER_TYPES, str):
        raise DamagedRow("has a value that is neither a number nor a text")
    return leaf_of({"type": match[1], "value": value}, "")


class TensorType(NamedTuple):
    """The valid dtype and shape of a row, with the text of the shape and the number of elements."""

    dtype: str
    extent: str
    shape: tuple[int, ...]
    size: int


def parse_tensor_type(dtype: Any, sizes: Any) -> TensorType:
    """Return the dtype and the shape of a tensor.

    Raises:
        DamagedRow: No tensor can have this dtype or this shape.
    """
    if type(sizes) is not list:
        raise DamagedRow("has no list of sizes")
    try:
        return _parse_tensor_type(dtype, tuple(sizes))
    except TypeError:
        raise DamagedRow("has a dtype or a shape that no tensor can have") from None


@lru_cache(maxsize=4096)
def _parse_tensor_type(dtype: Any, sizes: tuple[Any, ...]) -> TensorType:
    if type(dtype) is not str or _DTYPE.match(dtype) is None:
        raise DamagedRow("has no dtype")
    if len(sizes) > MAX_DIMENSIONS:
        raise DamagedRow("has no list of sizes")
    if any(type(size) is not int or not 0 <= size < 1 << 60 for size in sizes):
        raise DamagedRow("has a shape that no tensor can have")
    return TensorType(dtype, str(list(sizes)), sizes, math.prod(sizes))


def parse_statistics(numbers: Any) -> Statistics:
    """Return maximum, minimum, mean and L2 norm; None for what the tool wrote as ``[]`` or ``"Nan"``."""
    if type(numbers) is not list or len(numbers) > 4:
        raise DamagedRow("has no list of statistics")
    if NUMBER_TYPES.issuperset(map(type, numbers)):
        return Statistics(*numbers)
    return Statistics(*[_parse_statistic(item) for item in numbers])


def _parse_statistic(item: Any) -> int | float | bool | None:
    kind = type(item)
    if kind is float or kind is int or kind is bool:
        number: int | float | bool = item
        return number
    if item is None or item == [] or item == "Nan":
        return None
    raise DamagedRow("has a statistic that is no number")


def create_tensor_value(dtype: Any, sizes: Any, statistics: Statistics, data_name: str, checksum: str | None) -> Value:
    """Return the value of a tensor."""
    dtype, extent, shape, _ = parse_tensor_type(dtype, sizes)
    return Value(Kind.TENSOR, dtype, extent, shape, statistics, checksum, None, data_name)


def format_frame(frame: Any) -> str:
    """Return the text of one frame ``[file, line, function, source]``, as probe writes it."""
    if not isinstance(frame, list) or len(frame) != 4:
        raise DamagedRow("has a frame that is not of four fields")
    file, line, function, source = (str(part)[:MAX_NAME_LENGTH] if part is not None else "" for part in frame)
    return f"File {file}, line {line}, in {function}, \n {source.strip()}"


def format_frames(frames: Any) -> Sequence[str]:
    """Return the texts of the frames of a call stack, innermost first."""
    if type(frames) is not list:
        raise DamagedRow("has a call stack that is no list")
    return [format_frame(frame) for frame in frames]

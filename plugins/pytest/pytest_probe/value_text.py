"""The text of one recorded tensor in a golden file: dtype, shape, statistics and checksum.

``float32[2,8]* 1.5 -0.25 0.125 3.75 #1a2b3c4d`` is a tensor of float32 that requires a gradient, with its maximum,
minimum, mean and norm, and the checksum of its bytes. A tensor whose bytes occurred earlier in the step is written
without its statistics, as ``float32[16]* #1a2b3c4d``, and without dtype and shape if these are the same, as
``#1a2b3c4d``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

TENSOR_TYPE = "torch.Tensor"
DTYPE_PREFIX = "torch."
CHECKSUM_FIELD = "md5"
CHECKSUM_CHARACTERS = 8
"""Number of hexadecimal digits of a checksum that are kept: 32 bits."""
STATISTIC_FIELDS = ("Max", "Min", "Mean", "Norm")
LEAF_FIELDS = frozenset({"type", "dtype", "shape", *STATISTIC_FIELDS, "requires_grad", CHECKSUM_FIELD})
FLOAT_DIGITS = 8
"""Significant digits of statistics: their error is below the rounding of float32, 6e-8."""
SHORT_FLOAT_DIGITS = {"bfloat16": 6, "float16": 6}
"""Significant digits of statistics of dtypes with fewer bits: their error is below 1/50 of the rounding of float16."""
WIDE_DTYPES = ("float64", "complex128")
"""Dtypes whose statistics need all digits of a float64."""

Number = int | float | bool | None
Statistics = tuple[Number, Number, Number, Number]

_WORDS: dict[str, Number] = {
    "null": None, "true": True, "false": False, "nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"),
}  # fmt: skip
_PATTERN = re.compile(
    r"(?:(?P<dtype>\w+)\[(?P<shape>[\d,]*)\](?P<grad>\*?)(?: (?P<numbers>[^#]+?))?)?"
    r" ?(?:#(?P<sum>\w+))?"
)


class ValueTextError(ValueError):
    """A text that describes no tensor."""


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A recorded tensor.

    Attributes:
        dtype: The dtype without the name of the framework; empty for a reference to a tensor of the same type.
        shape: The sizes.
        requires_grad: True if it requires a gradient.
        statistics: Maximum, minimum, mean and norm; None for a reference to an earlier tensor.
        checksum: The checksum of its bytes; None if it has none.
    """

    dtype: str
    shape: tuple[int, ...]
    requires_grad: bool
    statistics: Statistics | None
    checksum: str | None

    @property
    def scale(self) -> float:
        """The larger magnitude of maximum and minimum, which differences of statistics are divided by."""
        ends = [abs(end) for end in (self.statistics or ())[:2] if end is not None]
        return max(ends, default=0.0)


def parse_leaf(leaf: Mapping[str, Any]) -> TensorValue | None:
    """Return the tensor that a leaf of a record describes; None for any other leaf."""
    if leaf.get("type") != TENSOR_TYPE or not leaf.keys() <= LEAF_FIELDS or not {"dtype", "shape"} <= leaf.keys():
        return None
    numbers = tuple(leaf.get(field) for field in STATISTIC_FIELDS)
    return TensorValue(
        str(leaf["dtype"]).removeprefix(DTYPE_PREFIX), tuple(leaf["shape"]), bool(leaf.get("requires_grad")),
        numbers, leaf[CHECKSUM_FIELD][:CHECKSUM_CHARACTERS] if leaf.get(CHECKSUM_FIELD) else None,  # type: ignore[arg-type]
    )  # fmt: skip


def format_leaf(value: TensorValue) -> dict[str, Any]:
    """Return the leaf of a record without its checksum, so that the statistics are compared."""
    statistics = dict(zip(STATISTIC_FIELDS, value.statistics or (None,) * 4))
    dtype = f"{DTYPE_PREFIX}{value.dtype}"
    leaf = {"type": TENSOR_TYPE, "dtype": dtype, "shape": list(value.shape), **statistics}
    return {**leaf, "requires_grad": value.requires_grad}


def format_value(value: TensorValue) -> str:
    """Return the text of a tensor."""
    shape = ",".join(map(str, value.shape))
    words = [f"{value.dtype}[{shape}]{'*' if value.requires_grad else ''}"] if value.dtype else []
    words += [_format_number(number, value.dtype) for number in value.statistics or ()]
    return " ".join(words if value.checksum is None else [*words, f"#{value.checksum}"])


def parse_value(text: str) -> TensorValue:
    """Return the tensor that a text describes.

    Raises:
        ValueTextError: It describes none.
    """
    match = _PATTERN.fullmatch(text)
    if not text or match is None:
        raise ValueTextError(f"{text!r:.80} is not the text of a tensor")
    try:
        numbers = tuple(map(_parse_number, (match["numbers"] or "").split()))
        shape = tuple(int(size) for size in (match["shape"] or "").split(",") if size)
    except ValueError:
        raise ValueTextError(f"{text!r:.80} holds a number that cannot be read") from None
    if len(numbers) not in (0, len(STATISTIC_FIELDS)):
        raise ValueTextError(f"{text!r:.80} does not hold {len(STATISTIC_FIELDS)} statistics")
    statistics: Any = numbers or None
    return TensorValue(match["dtype"] or "", shape, bool(match["grad"]), statistics, match["sum"])


def round_value(value: TensorValue) -> TensorValue:
    """Return a tensor with the digits of its statistics that its text holds."""
    return parse_value(format_value(value))


def _format_number(number: Number, dtype: str) -> str:
    if type(number) is not float:
        return "null" if number is None else str(number).lower()
    if not math.isfinite(number):
        return str(number)
    if dtype in WIDE_DTYPES:
        return repr(number)
    text = f"{number:.{SHORT_FLOAT_DIGITS.get(dtype, FLOAT_DIGITS)}g}"
    return text if any(character in text for character in ".en") else f"{text}.0"


def _parse_number(text: str) -> Number:
    if text in _WORDS:
        return _WORDS[text]
    try:
        return int(text)
    except ValueError:
        return float(text)


class SeenValues:
    """The tensors of a step by their checksums, so that each is written with its statistics once."""

    def __init__(self) -> None:
        self._values: dict[str, TensorValue] = {}
        self._references: dict[TensorValue, str] = {}

    def shorten(self, value: TensorValue) -> TensorValue:
        """Return a tensor, or a reference to an earlier tensor with the same bytes and statistics.

        A tensor without a checksum refers to an earlier tensor with the same type and statistics.
        """
        if value.checksum is None:
            checksum = self._references.get(value)
            return value if checksum is None else TensorValue("", (), False, None, checksum)
        earlier = self._values.get(value.checksum)
        if earlier is None or earlier.dtype != value.dtype or not _is_close(earlier, value):
            self._add(value)
            return value
        is_same = earlier.shape == value.shape and earlier.requires_grad == value.requires_grad
        return TensorValue("", (), False, None, value.checksum) if is_same else replace(value, statistics=None)

    def expand(self, value: TensorValue) -> TensorValue:
        """Return a tensor with its statistics.

        Raises:
            ValueTextError: No earlier tensor has its checksum.
        """
        if value.statistics is not None:
            if value.checksum is not None:
                self._add(value)
            return value
        earlier = self._values.get(value.checksum or "")
        if earlier is None:
            raise ValueTextError(f"no earlier tensor has the checksum {value.checksum}")
        return replace(value, statistics=earlier.statistics) if value.dtype else earlier

    def _add(self, value: TensorValue) -> None:
        assert value.checksum is not None
        self._values[value.checksum] = value
        self._references[replace(value, checksum=None)] = value.checksum


def _is_close(first: TensorValue, second: TensorValue) -> bool:
    """Return True if statistics differ by no more than another order of summation explains."""
    for number, reference in zip(first.statistics or (), second.statistics or ()):
        if number == reference or (number != number and reference != reference):
            continue
        if number is None or reference is None or abs(number - reference) > SAME_SUMS * first.scale:
            return False
    return True


SAME_SUMS = 1e-7
"""Largest difference of sums over the same elements in another order, relative to the largest element."""

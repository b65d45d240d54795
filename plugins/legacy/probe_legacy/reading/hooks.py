"""Runs of torch_npu.hooks 3.0.rc3 to 5.0: one text file whose rows contain the values themselves.

The tool did not number calls, so this module numbers them in the order of the file. A backward call gets the
number of the latest forward call with the same name that has no backward call yet and whose outputs have the
shapes of the gradients. If no shapes match, it gets the number of the latest forward call without a backward call.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from probe_recording.api import leaf_of

from probe_core.errors import UnreadableTensor
from probe_core.model import Kind, Mode, Statistics, Value
from probe_core.model.dtypes import get_dtype_kind, normalize_dtype
from probe_legacy.reading.lines import DamagedRow, scan_unparsed
from probe_legacy.reading.names import STACK, CallName, RowName, drop_number, parse_unnumbered_name
from probe_legacy.reading.run import LegacyCall, LegacyRun
from probe_legacy.reading.values import NUMBER_TYPES, format_frame, get_row_text, new_tuple, parse_tensor_type

SAMPLE_COUNT = 10
"""Number of samples at the start of a sampled row."""
STATISTIC_COUNT = 3
"""Number of statistics after the samples: the maximum, the minimum and the mean."""
OLDER_STATISTIC_COUNT = 2
"""Number of statistics in the rows of some releases: a sum and the mean."""
MAX_CACHED_NAMES = 16384
"""Maximum number of parsed row names in the cache."""
MAX_FRAME_LENGTH = 1000
"""Maximum length of a stack frame in an unknown format, in characters."""
_FRAME = re.compile(r"filename=('[^']*'|\"[^\"]*\"), lineno=(\d+), function=('[^']*')")
_CODE_CONTEXT = re.compile(r"code_context=(\[.*?\]), index=", re.DOTALL)


class HooksRun(LegacyRun):
    """A run that torch_npu.hooks recorded."""

    def __init__(self, path: Path) -> None:
        # names repeat, because they contain no call number
        self._parse_name = lru_cache(maxsize=MAX_CACHED_NAMES)(parse_unnumbered_name)
        self._calls: list[LegacyCall] = []
        self._counts: dict[str, int] = defaultdict(int)
        self._unmatched_forward_calls: dict[str, list[LegacyCall]] = defaultdict(list)
        self._is_sampled = False
        super().__init__(path, scan_unparsed)

    def parse_row(self, row: Any, offset: int) -> tuple[RowName, Value | tuple[str, ...]]:
        """Return the name of a row and its value, or the frames of a row of a call stack."""
        name = self._parse_name(drop_number(get_row_text(row)))
        if name is None:
            raise DamagedRow("has a name that torch_npu.hooks does not write")
        if name[1] == STACK:
            return name, (_format_frame(row[1]),)
        if len(row) == 2:
            return name, _parse_argument(row[1])
        if len(row) != 4:
            raise DamagedRow("has neither 2 nor 4 fields")
        return name, self._parse_tensor(row, offset)

    def _parse_tensor(self, row: list[Any], offset: int) -> Value:
        dtype, extent, shape, size = parse_tensor_type(row[2], row[3])
        numbers = row[1]
        if type(numbers) is not list:
            raise DamagedRow("has no list of numbers")
        if len(numbers) == SAMPLE_COUNT + STATISTIC_COUNT < size:  # the common case: the samples are not used
            self._is_sampled = True
            maximum, minimum, mean = numbers[-STATISTIC_COUNT:]
            if type(maximum) is type(minimum) is type(mean) is bytes:
                statistics = new_tuple(Statistics, (float(maximum), float(minimum), float(mean), None))
            else:
                statistics = Statistics(_parse_number(maximum), _parse_number(minimum), _parse_number(mean))
        else:
            is_parsed = NUMBER_TYPES.issuperset(map(type, numbers))
            statistics = self._compute_uncommon_statistics(
                numbers if is_parsed else list(map(_parse_number, numbers)), size, dtype
            )
        name = f"{row[0]}@{offset}"
        return new_tuple(Value, (Kind.TENSOR, dtype, extent, shape, statistics, None, None, name, None, ""))

    def _compute_uncommon_statistics(self, numbers: list[float], size: int, dtype: str) -> Statistics:
        """Return the statistics of a row that contains samples of a small tensor, or all values of a tensor."""
        if _is_sampled(numbers, size):
            self._is_sampled = True
            return _read_sampled_statistics(numbers, size)
        if len(numbers) != size:
            raise DamagedRow(f"holds {len(numbers)} values, but its shape needs {size}")
        return _compute_statistics(parse_numbers(numbers), dtype)

    # -- calls -----------------------------------------------------------------------------

    def find_or_create_call(self, name: CallName, place: str) -> LegacyCall:
        """Return the last call if the row may continue it, and otherwise a new call."""
        if self._calls:
            last = self._calls[-1]
            if _can_continue(last, name, place):
                return last
            self._assign_number(last)
        self._calls.append(LegacyCall(name))
        return self._calls[-1]

    def _assign_number(self, call: LegacyCall) -> None:
        """Set the number of a call. All rows of the call must have been read."""
        name = call.name
        unmatched_calls = self._unmatched_forward_calls[name.head]
        if name.phase == "forward":
            call.number = self._counts[name.head]
            self._counts[name.head] += 1
            unmatched_calls.append(call)
            return
        if unmatched_calls:
            gradient_shapes = _list_shapes(call, "input")
            candidates = (
                forward for forward in reversed(unmatched_calls) if _list_shapes(forward, "output") == gradient_shapes
            )
            forward = next(candidates, unmatched_calls[-1])
            unmatched_calls.remove(forward)
            call.number = forward.number
        else:
            call.number = self._counts[name.head]
            self._counts[name.head] += 1

    def finish_calls(self) -> Sequence[LegacyCall]:
        """Return all calls in the order of the file."""
        if self._calls:
            self._assign_number(self._calls[-1])
        calls, self._calls = self._calls, []
        self._unmatched_forward_calls.clear()
        return calls

    def decide_mode(self) -> Mode:
        """Return ``Mode.STATISTICS`` if any row contains samples, otherwise ``Mode.TENSOR``."""
        return Mode.STATISTICS if self._is_sampled else Mode.TENSOR

    # -- values ------------------------------------------------------------------------------

    def tensor(self, value: Value) -> np.ndarray[Any, Any]:
        """Return the values of a tensor: integers and booleans in their dtype, all other values as float32."""
        assert value.data_name is not None and value.shape is not None
        try:
            row = self.read_line(int(value.data_name.rpartition("@")[2]))
            array = parse_numbers(row[1]).reshape(value.shape)
        except (DamagedRow, ValueError, OSError, LookupError, TypeError) as error:
            raise UnreadableTensor(f"the row of {value.data_name} cannot be read again: {error}") from None
        dtype_kind = get_dtype_kind(value.dtype)
        with np.errstate(invalid="ignore"):
            return array.astype(normalize_dtype(value.dtype)) if dtype_kind in ("int", "bool") else array


def _list_shapes(call: LegacyCall, side: str) -> list[tuple[int, ...] | None]:
    return [value.shape for place, value in call.values.items() if place.startswith(side)]


def _can_continue(call: LegacyCall, name: CallName, place: str) -> bool:
    """Return True if a row may continue a call.

    The row must have the name of the call, and its place must be able to follow those of the call.
    """
    if call.name is not name and call.name != name:
        return False
    if not call.offsets:
        return True  # only rows of the call stack were read so far
    if place == STACK or place in call.offsets:
        return False
    first_side = "input" if name.phase == "forward" else "output"
    return not place.startswith(first_side) or next(reversed(call.offsets)).startswith(first_side)


def _parse_number(number: Any) -> float:
    """Return a number of a row, which ``scan_unparsed`` may have left as text."""
    if type(number) is bytes:
        return float(number)
    if type(number) not in NUMBER_TYPES:
        raise DamagedRow("has no list of numbers")
    return number  # type: ignore[no-any-return]


def parse_numbers(values: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the values of a row as an array of float32.

    Raises:
        DamagedRow: The values are not a list of numbers, or a number is too large.
    """
    if type(values) is not list or not NUMBER_TYPES.issuperset(map(type, values)):
        raise DamagedRow("has no list of numbers")
    try:
        with np.errstate(over="ignore"):
            return np.array(values, np.float64).astype(np.float32)
    except (OverflowError, ValueError):
        raise DamagedRow("has a number that is too large") from None


def _is_sampled(numbers: Sequence[float], size: int) -> bool:
    """Return True for a row of samples: the first values, then maximum, minimum and mean.

    A list with as many numbers as the tensor has elements contains all values. A list of 13 numbers is ambiguous,
    because it may also contain 10 samples and three statistics.
    """
    if len(numbers) < size:
        return True
    sample_count = min(size, SAMPLE_COUNT)
    if len(numbers) != sample_count + STATISTIC_COUNT:
        return size < len(numbers) == sample_count + OLDER_STATISTIC_COUNT
    if size != SAMPLE_COUNT + STATISTIC_COUNT:
        return True
    maximum, minimum, mean = numbers[-STATISTIC_COUNT:]
    return minimum <= mean <= maximum and all(minimum <= number <= maximum for number in numbers[:SAMPLE_COUNT])


def _read_sampled_statistics(numbers: Sequence[float], size: int) -> Statistics:
    """Return the statistics in a sampled row. Some releases wrote only a sum and a mean, others no statistics."""
    sample_count = min(size, SAMPLE_COUNT)
    if len(numbers) == sample_count + STATISTIC_COUNT:
        return Statistics(*numbers[-STATISTIC_COUNT:])
    return Statistics(mean=numbers[-1]) if len(numbers) == sample_count + OLDER_STATISTIC_COUNT else Statistics()


def _compute_statistics(numbers: np.ndarray[Any, Any], dtype: str) -> Statistics:
    """Return the statistics of all values of a tensor, computed in float64; an empty tensor has none."""
    if not len(numbers):
        return Statistics()
    if get_dtype_kind(dtype) == "bool":
        return Statistics(bool(numbers.max()), bool(numbers.min()))
    with np.errstate(all="ignore"):
        exact = numbers.astype(np.float64)
        norm = float(np.sqrt(np.dot(exact, exact)))
        return Statistics(float(exact.max()), float(exact.min()), float(exact.mean()), norm)


def _parse_argument(value: Any) -> Value:
    """Return the value of an argument that is not a tensor."""
    if value is not None and type(value) not in (int, float, bool, bytes, str):
        raise DamagedRow("has a value that is neither a number nor a text")
    return leaf_of(float(value) if type(value) is bytes else value, "")


def _format_frame(text: Any) -> str:
    """Return a stack frame in the format of probe, parsed from the ``repr`` that the tool wrote."""
    if type(text) is not str:
        raise DamagedRow("has a frame that is no text")
    place, code = _FRAME.search(text), _CODE_CONTEXT.search(text)
    if place is None:
        return text[:MAX_FRAME_LENGTH]
    source = ""
    if code is not None:
        try:
            lines = ast.literal_eval(code[1])
            source = str(lines[0]) if isinstance(lines, list) and lines else ""
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            pass
    return format_frame([place[1][1:-1], place[2], place[3][1:-1], source])

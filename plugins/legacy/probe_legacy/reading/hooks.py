"""Runs of torch_npu.hooks 3.0.rc3 to 5.0: one text file whose rows hold the values themselves.

The tool counted no calls. Calls are numbered here in the order of the file; a backward call gets the number
of the latest forward call of its name that has none yet, and whose output has the shape of its gradient.
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
from probe_recording import leaf_of

from probe_core.errors import UnreadableTensor
from probe_core.model import Kind, Mode, Statistics, Value
from probe_core.model.dtypes import get_dtype_kind, normalize_dtype
from probe_legacy.reading.lines import DamagedRow, scan_unparsed
from probe_legacy.reading.names import STACK, CallName, RowName, drop_number, parse_unnumbered_name
from probe_legacy.reading.run import LegacyCall, LegacyRun
from probe_legacy.reading.values import format_frame, made, name_in, parse_tensor_type

SAMPLE_COUNT = 10
"""Number of values that a sampled row holds, before the maximum, the minimum and the mean."""
MAX_CACHED_NAMES = 16384
"""Limit on the names of rows that are kept in memory with their parts."""
_FRAME = re.compile(r"filename=('[^']*'|\"[^\"]*\"), lineno=(\d+), function=('[^']*')")
_NUMBERS = frozenset({int, float, bool})
_CODE_CONTEXT = re.compile(r"code_context=(\[.*?\]), index=", re.DOTALL)


class HooksRun(LegacyRun):
    """A run that torch_npu.hooks recorded."""

    def __init__(self, path: Path) -> None:
        self._name = lru_cache(maxsize=MAX_CACHED_NAMES)(parse_unnumbered_name)  # names repeat: they hold no count
        self._calls: list[LegacyCall] = []
        self._counts: dict[str, int] = defaultdict(int)
        self._waiting: dict[str, list[LegacyCall]] = defaultdict(list)
        self._is_sampled = False
        super().__init__(path, scan_unparsed)

    def parse_row(self, row: Any, begin: int) -> tuple[RowName, Value | tuple[str, ...]]:
        """Return the name of a row and its value, or the frames of a row of a call stack."""
        name = self._name(drop_number(name_in(row)))
        if name is None:
            raise DamagedRow("has a name that torch_npu.hooks does not write")
        if name[1] == STACK:
            return name, (_format_frame(row[1]),)
        if len(row) == 2:
            return name, _parse_argument(row[1])
        if len(row) != 4:
            raise DamagedRow("has neither 2 nor 4 fields")
        return name, self._parse_tensor(row, begin)

    def _parse_tensor(self, row: list[Any], begin: int) -> Value:
        dtype, extent, shape, size = parse_tensor_type(row[2], row[3])
        numbers = row[1]
        if type(numbers) is not list:
            raise DamagedRow("has no list of numbers")
        if len(numbers) == SAMPLE_COUNT + 3 < size:  # the common row, whose samples nobody asks for
            self._is_sampled = True
            top, bottom, mean = numbers[-3:]
            if type(top) is type(bottom) is type(mean) is bytes:
                statistics = made(Statistics, (float(top), float(bottom), float(mean), None))
            else:
                statistics = Statistics(_parse_number(top), _parse_number(bottom), _parse_number(mean))
        else:
            is_parsed = _NUMBERS.issuperset(map(type, numbers))
            statistics = self._compute_uncommon_statistics(
                numbers if is_parsed else list(map(_parse_number, numbers)), size, dtype
            )
        name = f"{row[0]}@{begin}"
        return made(Value, (Kind.TENSOR, dtype, extent, shape, statistics, None, None, name, None, ""))

    def _compute_uncommon_statistics(self, numbers: list[float], size: int, dtype: str) -> Statistics:
        """Return the statistics of a row of samples of a small tensor, or of all values."""
        if _is_sampled(numbers, size):
            self._is_sampled = True
            return _read_sampled_statistics(numbers, size)
        if len(numbers) != size:
            raise DamagedRow(f"holds {len(numbers)} values for a tensor of {size}")
        return _compute_statistics(parse_numbers(numbers), dtype)

    # -- calls -----------------------------------------------------------------------------

    def call_of(self, name: CallName, place: str) -> LegacyCall:
        """Return the call that a row continues; a new one if it cannot continue the call before it."""
        if self._calls:
            last = self._calls[-1]
            if _can_continue(last, name, place):
                return last
            self._number(last)
        self._calls.append(LegacyCall(name))
        return self._calls[-1]

    def _number(self, call: LegacyCall) -> None:
        """Give a call its number once all of its rows are read."""
        name = call.name
        waiting = self._waiting[name.head]
        if name.phase == "forward":
            call.count = self._counts[name.head]
            self._counts[name.head] += 1
            waiting.append(call)
            return
        if waiting:
            gradients = _list_shapes(call, "input")
            alike = (forward for forward in reversed(waiting) if _list_shapes(forward, "output") == gradients)
            forward = next(alike, waiting[-1])
            waiting.remove(forward)
            call.count = forward.count
        else:
            call.count = self._counts[name.head]
            self._counts[name.head] += 1

    def finish_calls(self) -> Sequence[LegacyCall]:
        """Return all calls in the order of the file."""
        if self._calls:
            self._number(self._calls[-1])
        calls, self._calls = self._calls, []
        self._waiting.clear()
        return calls

    def decide_mode(self) -> Mode:
        """Return statistics if any row is sampled; rows that hold all values are tensors."""
        return Mode.STATISTICS if self._is_sampled else Mode.TENSOR

    # -- values ------------------------------------------------------------------------------

    def tensor(self, value: Value) -> np.ndarray[Any, Any]:
        """Return the values in the row of a tensor, in its dtype if numpy has it; else as float32."""
        assert value.data_name is not None and value.shape is not None
        try:
            row = self.read_line(int(value.data_name.rpartition("@")[2]))
            array = parse_numbers(row[1]).reshape(value.shape)
        except (DamagedRow, ValueError, OSError, LookupError, TypeError) as error:
            raise UnreadableTensor(f"the row of {value.data_name} cannot be read again: {error}") from None
        sort = get_dtype_kind(value.dtype)
        with np.errstate(invalid="ignore"):
            return array.astype(normalize_dtype(value.dtype)) if sort in ("int", "bool") else array


def _list_shapes(call: LegacyCall, side: str) -> list[tuple[int, ...] | None]:
    return [value.shape for place, value in call.values.items() if place.startswith(side)]


def _can_continue(call: LegacyCall, name: CallName, place: str) -> bool:
    """Return True if a row may be the next of a call: of the same name, and behind its rows so far."""
    if call.name is not name and call.name != name:
        return False
    if not call.offsets:
        return True  # rows of its call stack so far
    if place == STACK or place in call.offsets:
        return False
    first = "input" if name.phase == "forward" else "output"
    return not place.startswith(first) or next(reversed(call.offsets)).startswith(first)


def _parse_number(number: Any) -> float:
    """Return a number of a row, which ``scan_unparsed`` may have left as text."""
    if type(number) is bytes:
        return float(number)
    if type(number) not in _NUMBERS:
        raise DamagedRow("has no list of numbers")
    return number  # type: ignore[no-any-return]


def parse_numbers(values: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the values of a row as an array of float32.

    Raises:
        DamagedRow: They are no list of numbers.
    """
    if type(values) is not list or not _NUMBERS.issuperset(map(type, values)):
        raise DamagedRow("has no list of numbers")
    try:
        with np.errstate(over="ignore"):
            return np.array(values, np.float64).astype(np.float32)
    except (OverflowError, ValueError):
        raise DamagedRow("has a number that is too large") from None


def _is_sampled(numbers: Sequence[float], size: int) -> bool:
    """Return True for a row of samples: the first values, then maximum, minimum and mean.

    A list as long as the tensor holds all of its values, save for 13 values, which may be 10 and these three.
    """
    if len(numbers) < size:
        return True
    sample_count = min(size, SAMPLE_COUNT)
    if len(numbers) != sample_count + 3:
        return size < len(numbers) == sample_count + 2
    if size != SAMPLE_COUNT + 3:
        return True
    top, bottom, mean = numbers[-3:]
    return bottom <= mean <= top and all(bottom <= number <= top for number in numbers[:SAMPLE_COUNT])


def _read_sampled_statistics(numbers: Sequence[float], size: int) -> Statistics:
    """Return the statistics in a sampled row; other releases wrote only a sum and a mean, or none."""
    sample_count = min(size, SAMPLE_COUNT)
    if len(numbers) == sample_count + 3:
        return Statistics(*numbers[-3:])
    return Statistics(mean=numbers[-1]) if len(numbers) == sample_count + 2 else Statistics()


def _compute_statistics(numbers: np.ndarray[Any, Any], dtype: str) -> Statistics:
    """Return the statistics of all values of a tensor, computed in float64; none of an empty tensor."""
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
    """Return a frame, which the tool wrote as the text of a Python object."""
    if type(text) is not str:
        raise DamagedRow("has a frame that is no text")
    place, code = _FRAME.search(text), _CODE_CONTEXT.search(text)
    if place is None:
        return text[:1000]
    source = ""
    if code is not None:
        try:
            lines = ast.literal_eval(code[1])
            source = str(lines[0]) if isinstance(lines, list) and lines else ""
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            pass
    return format_frame([place[1][1:-1], place[2], place[3][1:-1], source])

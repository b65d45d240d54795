"""Rows of the older tools' files, made from a run that probe recorded (docs/legacy.md#calls)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from probe_pytorch.reader import PyTorchReader

from probe_core.model import Kind, Record, Side, Slot
from probe_core.model.run import Run
from probe_core.store.files import DEFAULT_RECORD_FILES, STACK_FILE
from probe_legacy.calls.selection import STACK_MODES, CallSelection, format_old_name
from probe_legacy.calls.versions import Version

Array = np.ndarray[Any, Any]
_FRAME = re.compile(r"File (.+), line (\d+), in (.+?), \n ?(.*)", re.DOTALL)
_NUMBERS = ("<class 'int'>", "<class 'float'>", "<class 'bool'>")
SAMPLE_COUNT = 10
"""Number of values in a sampled row of torch_npu.hooks."""
_PLACE = re.compile(r"\d+(\.\d+)*")


def open_recording(directory: Path) -> Run:
    """Return the run in a directory of probe's recorder."""
    run = PyTorchReader().open(directory / DEFAULT_RECORD_FILES[0])
    if (directory / STACK_FILE).is_file():
        run.use_stacks(directory / STACK_FILE)
    return run


def read_frames(run: Run, key: str) -> list[list[str]]:
    """Return the frames of a call, innermost first."""
    return split_frames(run.stack_of(key) or ())


def split_frames(frames: Iterable[str]) -> list[list[str]]:
    """Return frames in the form of the tools: file, line, function and source."""
    return [list(match.groups()) for frame in frames if (match := _FRAME.match(frame))]


def format_row_name(record: Record, slot: Slot, name: str, tuples: Collection[str]) -> str | None:
    """Return the name of the row of a value; None for a keyword argument, which the tools left out.

    Args:
        record: The record.
        slot: The value.
        name: The name of the call in the tool's words.
        tuples: The names of records whose result is a tuple of one.
    """
    if slot.side not in (Side.INPUT, Side.OUTPUT) or not _PLACE.fullmatch(slot.path):
        return None
    path = f".{slot.path}"
    if slot.side is Side.OUTPUT and name.endswith("forward") and record.key not in tuples:
        places = [sibling.path for sibling in record.slots if sibling.side is Side.OUTPUT]
        if all(place == "0" or place.startswith("0.") for place in places):
            path = path.removeprefix(".0")  # a single result, or a list
    return f"{name}_{slot.side.value}{path}"


@dataclass(slots=True)
class PtdbgRows:
    """A writer of the rows of ptdbg_ascend.

    Attributes:
        version: The version of the tool.
        selection: The calls to write.
        filters: True to leave out all but floating tensors with a dimension and an element.
        tuples: The names of records whose result is a tuple of one.
        written: The number of calls of which something was written.
    """

    version: Version
    selection: CallSelection
    filters: bool
    tuples: Collection[str] = ()
    written: int = 0

    def write(self, run: Run, file: TextIO, directory: Path) -> None:
        """Write the rows of a run to the end of a file, and its tensors to a directory."""
        mode = self.selection.mode
        for record in run.records():
            name = format_old_name(record.key)
            if not self.selection.takes(name):
                continue
            self.written += 1
            stack: list[Any] = [f"{name}_stack_info", read_frames(run, record.key)]
            if mode in ("stack", "acl"):
                _put(file, stack)
                continue
            if mode in self.version.stacks_first:
                _put(file, stack)
            for row, array in self._iterate_rows(run, record, name):
                np.save(directory / f"{row[0]}.npy", array)
                _put(file, row)
            if mode in STACK_MODES and mode not in self.version.stacks_first:
                _put(file, stack)

    def _iterate_rows(self, run: Run, record: Record, name: str) -> Iterator[tuple[list[Any], Array]]:
        for slot in record.slots:
            full = format_row_name(record, slot, name, self.tuples)
            value = slot.value
            if full is None:
                continue
            if value.kind is Kind.TENSOR and value.data_name is not None:
                is_plain = "float" not in value.dtype or not value.shape or 0 in value.shape
                if is_plain and self.filters:
                    continue
                array = run.tensor(value)
                if array.dtype.kind not in "biufc":
                    array = array.astype(np.float32)  # bfloat16, which .npy files do not have
                yield self._create_row(full, value.dtype, value.shape, self._compute_statistics(array, is_plain)), array
            elif value.dtype in _NUMBERS and not self.filters:
                top = value.statistics.max
                number = top == "True" if isinstance(top, str) else top
                numbers = [number] * (4 if self.version.has_norm else 3)
                yield self._create_row(full, value.dtype, "[]", numbers), np.array(number)

    def _create_row(self, name: str, dtype: str, shape: Any, statistics: list[Any]) -> list[Any]:
        return [name, self.version.flag, [], dtype, shape, statistics]

    def _compute_statistics(self, array: Array, is_plain: bool) -> list[Any]:
        """Return maximum, minimum, mean, and from 4.0 on the norm, as the tool rounded them: to float32."""
        if not array.size or array.dtype == bool:
            numbers: list[Any] = [[], [], []]
        else:
            with np.errstate(all="ignore"):
                values = array.astype(np.float32)
                mean = np.mean(values, dtype=np.float64)
                numbers = [float(n) for n in (values.max(), values.min(), np.float32(mean))]
        if self.version.has_norm:
            with np.errstate(all="ignore"):
                norm = np.float32(np.linalg.norm(array.astype(np.float64).ravel())) if not is_plain else 0
            numbers.append("Nan" if is_plain else float(norm))
        return numbers


@dataclass(slots=True)
class HooksRows:
    """A writer of the rows of torch_npu.hooks, whose names hold no counts.

    3.0.rc3 wrote all tensors and all their values. 3.0.0 numbered the rows and wrote floating tensors with a
    dimension: the first ten values, maximum, minimum and mean of each, or all values.

    Attributes:
        tuples: The names of records whose result is a tuple of one.
        is_numbered: True for the rows of 3.0.0.
        sampled: True for the first values and the statistics only.
        number: The number of the next row.
    """

    tuples: Collection[str] = ()
    is_numbered: bool = False
    sampled: bool = False
    number: int = 0

    def write(self, run: Run, file: TextIO) -> None:
        """Write the rows of a run to the end of a file; gradients of inputs are called ``input``."""
        for record in run.records():
            prefix, _, phase = record.key.rsplit(".", 2)
            family, _, op = prefix.partition(".")
            rows: list[list[Any]] = []
            for slot in record.slots:
                name = format_row_name(record, slot, f"{family}_{op}_{phase}", self.tuples)
                if name is not None and self._takes(slot):
                    name = _swap_sides(name) if phase == "backward" else name
                    array = run.tensor(slot.value).astype(np.float32).ravel()
                    rows.append([name, self._list_values(array), slot.value.dtype, slot.value.shape])
            if phase == "backward":
                rows.sort(key=lambda row: "_output" in str(row[0]))
            for row in rows:
                if self.is_numbered:
                    row[0] = f"{self.number}_{row[0]}"
                    self.number += 1
                _put(file, row)

    def _takes(self, slot: Slot) -> bool:
        value = slot.value
        if value.kind is not Kind.TENSOR or value.data_name is None:
            return False
        return not self.is_numbered or ("float" in value.dtype and bool(value.shape))

    def _list_values(self, array: Array) -> list[float]:
        if not self.sampled or not array.size:
            return list(array.tolist())
        with np.errstate(all="ignore"):
            mean = np.float32(array.mean(dtype=np.float64))
        return [*array[:SAMPLE_COUNT].tolist(), float(array.max()), float(array.min()), float(mean)]


def _swap_sides(name: str) -> str:
    head, _, tail = name.rpartition("backward_")
    side, dot, path = tail.partition(".")
    return f"{head}backward_{'input' if side == 'output' else 'output'}{dot}{path}"


def _put(file: TextIO, row: list[Any]) -> None:
    json.dump(row, file)
    file.write("\n")

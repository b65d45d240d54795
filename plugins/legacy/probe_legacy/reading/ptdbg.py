"""Runs of ptdbg_ascend 1.0 to 6.0: a text file, and ``.npy`` files in a directory of its stem."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from probe_recording.api import load_npy
from probe_recording.reading.tensors import open_tensors

from probe_core.errors import UnreadableTensor
from probe_core.model import Mode, Value
from probe_legacy.reading.lines import DamagedRow
from probe_legacy.reading.names import STACK, CallName, RowName, RowNames, parse_ptdbg_name
from probe_legacy.reading.run import LegacyCall, LegacyRun
from probe_legacy.reading.values import (
    create_tensor_value,
    format_frames,
    get_row_text,
    parse_scalar,
    parse_statistics,
)


class PtdbgRun(LegacyRun):
    """A run that ptdbg_ascend recorded."""

    def __init__(self, path: Path) -> None:
        self._row_names = RowNames(parse_ptdbg_name)
        self._calls: dict[CallName, LegacyCall] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._modules: dict[str, int] = {}
        self._has_checksum = False
        super().__init__(path)
        self._tensors = open_tensors(_find_tensor_directory(path), load_npy)

    def parse_row(self, row: Any, offset: int) -> tuple[RowName, Value | tuple[str, ...]]:
        """Return the name of a row and its value, or the frames of a row of a call stack."""
        text = get_row_text(row)
        name = self._row_names.parse_name(text)
        if name is None:
            raise DamagedRow("has a name that ptdbg_ascend does not write")
        if name[1] == STACK:
            return name, tuple(format_frames(row[1]))
        if not 5 <= len(row) <= 6:
            raise DamagedRow("has neither 5 nor 6 fields")
        statistics = row[5] if len(row) == 6 else []
        value = parse_scalar(row[3], statistics)
        if value is None:
            checksum = row[2] if row[2] and isinstance(row[2], str) else None
            if checksum is not None:
                self._has_checksum = True
            value = create_tensor_value(row[3], row[4], parse_statistics(statistics), f"{text}.npy", checksum)
        return name, value

    def find_or_create_call(self, name: CallName, place: str) -> LegacyCall:
        """Return the call with this name, which is created for its first row."""
        call = self._calls.get(name)
        if call is None:
            call = self._calls[name] = LegacyCall(name, self._determine_number(name))
        return call

    def _determine_number(self, name: CallName) -> int:
        """Return the number of a call among the calls of its module; ptdbg_ascend 6.0 counts the calls of a class."""
        if not name.is_module:
            return name.number
        call = name.head, name.number
        number = self._numbers.get(call)
        if number is None:
            number = self._numbers[call] = self._modules.get(name.head, 0)
            self._modules[name.head] = number + 1
        return number

    def finish_calls(self) -> Sequence[LegacyCall]:
        """Return all calls in the order of the file."""
        calls = list(self._calls.values())
        self._calls.clear()
        return calls

    def decide_mode(self) -> Mode:
        """Return tensors if there is a directory of them, checksums if there are any, else statistics."""
        if _find_tensor_directory(self.path).is_dir():
            return Mode.TENSOR
        return Mode.MD5 if self._has_checksum else Mode.STATISTICS

    def tensor(self, value: Value) -> np.ndarray[Any, Any]:
        """Return the array of a tensor value."""
        array = self._tensors(value)
        if array.shape != value.shape:
            raise UnreadableTensor(f"{value.data_name} holds the shape {list(array.shape)}, and its row {value.extent}")
        return array

    def close(self) -> None:
        """Close the files; arrays already returned stay readable."""
        super().close()
        self._tensors.close()


def _find_tensor_directory(path: Path) -> Path:
    """Return the directory of the tensors of a file."""
    return path.with_suffix("")

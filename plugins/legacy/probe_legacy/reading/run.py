"""A run in one text file of an older tool, which is parsed line by line in bounded memory."""

from __future__ import annotations

import sys
import threading
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from probe_recording.reading.run import pause_collection

from probe_core.errors import UserError
from probe_core.model import Mode, Record, Side, Slot, Value
from probe_core.model.run import MAX_CACHED_SLOTS, Header, Run
from probe_core.store.names import is_module
from probe_legacy.reading.lines import MAX_LINE_BYTES, DamagedRow, Scan, parse_value, read_lines, scan
from probe_legacy.reading.names import CallName, RowName, parse_place
from probe_legacy.reading.values import new_tuple

FRAMEWORK = "pytorch"
MAX_STACK_FRAMES = 1000
"""Maximum number of frames of a call stack."""
Layout = Sequence[tuple[str, Side, str]]
"""The places of the values of a call, each with its side and path."""


class LegacyCall:
    """The rows of one call while a file is read.

    Attributes:
        name: The parts of the name of the call.
        number: The index of the call among the calls with the same name.
        offsets: The offset of the line of each value, by its place such as ``input.0``.
        values: The values that are kept in memory, by their places.
        frames: The frames of its call stack, innermost first.
    """

    __slots__ = ("frames", "name", "number", "offsets", "values")

    def __init__(self, name: CallName, number: int = 0) -> None:
        self.name, self.number = name, number
        self.offsets: dict[str, int] = {}
        self.values: dict[str, Value] = {}
        self.frames: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name of the call."""
        return self.name.format_key(self.number)


class LegacyRun(Run):
    """A run in a text file of ptdbg_ascend or torch_npu.hooks.

    The constructor reads the file once and checks every row. The first ``MAX_CACHED_SLOTS`` values stay in
    memory; later values are parsed again when they are needed. If the file contains a row twice, the last row is
    used, because it describes the content of the tensor file.

    Args:
        path: The file.
        scan_short: The function that parses the short lines of the file.

    Raises:
        UserError: The file cannot be read, or contains no row.
    """

    def __init__(self, path: Path, scan_short: Scan = scan) -> None:
        self.path = path
        self._frames: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._cached_value_count = 0
        with pause_collection():
            unfinished = read_lines(path, self._add_row, scan_short)
            self._index_calls(self.finish_calls())
        self.mode = self.decide_mode()
        task = "tensor" if self.mode is Mode.TENSOR else "statistics"
        self.header = Header(task, self._find_level(), FRAMEWORK, False, unfinished)
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise UserError(
                f"{path} cannot be read: {error.strerror or error}.", "Check the path and its permissions."
            ) from None
        self._lock = threading.Lock()

    # -- implemented by each format ------------------------------------------------------

    @abstractmethod
    def parse_row(self, row: Any, offset: int) -> tuple[RowName, Value | tuple[str, ...]]:
        """Return the name of a row and its value, or the frames of a row of a call stack.

        Raises:
            DamagedRow: The row violates the format.
        """

    @abstractmethod
    def find_or_create_call(self, name: CallName, place: str) -> LegacyCall:
        """Return the call that the next row of the file belongs to."""

    @abstractmethod
    def finish_calls(self) -> Sequence[LegacyCall]:
        """Return all calls in the order of the file, including calls that have only a call stack."""

    @abstractmethod
    def decide_mode(self) -> Mode:
        """Return the kind of data that the run contains."""

    # -- reading -------------------------------------------------------------------------

    def _add_row(self, row: Any, offset: int) -> None:
        name, value = self.parse_row(row, offset)
        if not isinstance(value, Value):
            call = self.find_or_create_call(*name)
            frames = (call.frames + value)[:MAX_STACK_FRAMES]
            call.frames = self._frames.setdefault(frames, frames)
            return
        place = name[1]
        call = self.find_or_create_call(*name)
        call.offsets[place] = offset
        if self._cached_value_count < MAX_CACHED_SLOTS or place in call.values:
            self._cached_value_count += place not in call.values
            call.values[place] = value

    def _index_calls(self, all_calls: Sequence[LegacyCall]) -> None:
        self._stacks = {call.key: call.frames for call in all_calls if call.frames}
        calls = [call for call in all_calls if call.offsets]
        self._names = [sys.intern(call.key) for call in calls]
        self._index = {key: index for index, key in enumerate(self._names)}
        self.starts = array("q", accumulate((len(call.offsets) for call in calls), initial=0))
        self.signatures: array[int] = array("q")
        self._cached_records: dict[int, Record] = {}
        self._offsets: dict[int, array[int]] = {}
        layouts: dict[tuple[str, ...], Layout] = {}  # most calls have the layout of an earlier call
        for index, call in enumerate(calls):
            key, places, values = self._names[index], tuple(call.offsets), call.values
            layout = layouts.get(places)
            if layout is None:
                layout = layouts[places] = _sort_places(places)
            names = [f"{key}.{place}" for place, _, _ in layout]
            self.signatures.append(hash(tuple(names)))
            if len(values) == len(places):
                slots = [
                    new_tuple(Slot, (name, side, path, values[place]))
                    for name, (place, side, path) in zip(names, layout)
                ]
                self._cached_records[index] = Record(index, key, tuple(slots))
            else:
                self._offsets[index] = array("q", [call.offsets[place] for place, _, _ in layout])

    def _find_level(self) -> str:
        module_count = sum(map(is_module, self._names))
        if not module_count:
            return "L1"
        return "L0" if module_count == len(self._names) else "mix"

    # -- records -------------------------------------------------------------------------

    def names(self) -> Sequence[str]:
        """Return the names of the calls, in the order of the file."""
        return self._names

    def find(self, key: str) -> int | None:
        """Return the index of the call ``key``, or None."""
        return self._index.get(key)

    def record(self, index: int) -> Record:
        """Return the call at ``index``."""
        return self._cached_records.get(index) or self._parse_record(index)

    def _parse_record(self, index: int) -> Record:
        key = self._names[index]
        slots: list[Slot] = []
        for offset in self._offsets[index]:
            try:
                name, value = self.parse_row(self.read_line(offset), offset)
            except DamagedRow as error:
                raise UserError(
                    f"{self.path} was changed while it was read: a row of {key} {error}.", "Compare again."
                ) from None
            assert isinstance(value, Value)
            slots.append(Slot(f"{key}.{name[1]}", *parse_place(name[1]), value))
        return Record(index, key, tuple(slots))

    def read_line(self, offset: int) -> Any:
        """Return the JSON value of the line at an offset."""
        with self._lock:
            self._file.seek(offset)
            data = self._file.readline(MAX_LINE_BYTES)
        return parse_value(data)

    def stack_of(self, key: str) -> tuple[str, ...] | None:
        """Return the frames recorded for a call, innermost first; a backward call has none."""
        return self._stacks.get(key)

    def close(self) -> None:
        """Close the file; arrays already returned stay readable."""
        self._file.close()


def _sort_places(places: Iterable[str]) -> Layout:
    """Return the places of a call in the order of its slots: inputs first, then outputs."""
    sorted_places = sorted(places, key=lambda place: place.startswith("output"))
    return [(place, *parse_place(place)) for place in sorted_places]

"""A run in a ``dump.json``: its header, an index of its records, and its tensors, opened on demand."""

from __future__ import annotations

import gc
import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from probe_core.errors import UserError, make_printable
from probe_core.files.user_files import check_regular, load_object
from probe_core.model import Mode, Record, Value
from probe_core.model.run import Construct, Header, Run
from probe_core.progress import report_progress
from probe_core.store.files import CONSTRUCT_FILE, STACK_FILE, TENSOR_DIRECTORY
from probe_recording.file_names import (
    FAMILIES_FIELD,
    LOST_FIELD,
    PROBE_FIELD,
    SELECTED_TENSORS_FIELD,
    SLICES_FIELD,
    UNFINISHED_FIELD,
    UNRECORDED_FIELD,
)
from probe_recording.reading import jsonstream
from probe_recording.reading.columns import RunColumnsBuilder
from probe_recording.reading.construct import read_construct
from probe_recording.reading.jsonstream import JsonCursor, JsonError
from probe_recording.reading.leaves import FieldError, add_record
from probe_recording.reading.records import read_ordinary
from probe_recording.reading.tensors import TensorLoader, open_tensors

OVERFLOW_TASKS = ("overflow_check", "nan_check")
"""Tasks whose runs can be opened and not compared: they hold the records with nan or infinity alone."""
MAX_SLICES_CHARACTERS = 1000

OTHER_FILE_FIX = "Give the dump.json or debug.json that a recorder wrote."
PROGRESS_INTERVAL_BYTES = 4 << 20
"""Bytes read between two reports of progress."""


@contextmanager
def pause_collection() -> Iterator[None]:
    """Pause Python's garbage collector, which would search all parsed records again and again in vain."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _parse_notes(notes: Any) -> tuple[str, dict[str, frozenset[str]], dict[str, int], str, bool]:
    """Return the notes of probe's recorder, in the order of the fields of ``Header``."""
    if not isinstance(notes, dict):
        return "", {}, {}, "", False
    families, unrecorded = notes.get(FAMILIES_FIELD), notes.get(UNRECORDED_FIELD)
    return (
        _find_unfinished_reason(notes),
        {
            family: frozenset(scope for scope in scopes if isinstance(scope, str))
            for family, scopes in (families.items() if isinstance(families, dict) else ())
            if isinstance(scopes, list)
        },
        {
            name: count
            for name, count in (unrecorded.items() if isinstance(unrecorded, dict) else ())
            if isinstance(count, int)
        },
        make_printable(str(notes.get(SLICES_FIELD, "")), MAX_SLICES_CHARACTERS),
        notes.get(SELECTED_TENSORS_FIELD) is True,
    )


def _find_unfinished_reason(notes: dict[str, Any]) -> str:
    """Return the reason why the last records may be missing; empty if none are."""
    if not notes.get(UNFINISHED_FIELD):
        return ""
    lost = notes.get(LOST_FIELD)
    return lost if lost and isinstance(lost, str) else "The recording was ended within the step, or goes on."


class DumpRun(Run):
    """One ``dump.json`` or ``debug.json`` with the files beside it (docs/formats.md#dump-json).

    Opening it reads the file once, checks every record and notes its offset. The values stay in memory as
    columns, which take some 80 bytes per value.

    Args:
        path: The record file.
        framework: The framework of a file whose header names none.
        load: The reader of the framework's tensor files.

    Raises:
        UserError: The file cannot be read, or its content violates the format.
    """

    def __init__(self, path: Path, framework: str, load: TensorLoader) -> None:
        self.path = path
        self.is_debug = path.name.endswith("debug.json")
        self._names: list[str] = []
        self._begins = array("q")
        self._ends = array("q")
        self._index: dict[str, int] = {}
        columns = RunColumnsBuilder()
        with pause_collection():
            self.header = self._scan(framework, columns)
        self.values = columns.finish()
        self.starts, self.signatures = self.values.starts, self.values.signatures
        self._has_checksum = columns.has_checksum
        if self.header.task not in OVERFLOW_TASKS:
            _ = self.mode  # so that a run without values is refused when it is opened
        self._file = path.open("rb")
        self._stacks: RecordedStacks | None = None
        self._tensors = open_tensors(path.parent / TENSOR_DIRECTORY, load)

    # -- reading -----------------------------------------------------------------------

    def _scan(self, framework: str, columns: RunColumnsBuilder) -> Header:
        """Read the file once, and return its header."""
        try:
            check_regular(self.path)
            with self.path.open("rb") as file:
                head = self._read_members(JsonCursor(file), columns, self.path.stat().st_size)
        except JsonError as error:
            raise UserError(
                f"{self.path} is not valid JSON: {error}.",
                "The file may have been cut off; copy it again or record the run again.",
            ) from None
        except FieldError as error:
            raise UserError(f"{self.path}: {error}.", "Record the run again, or correct that field.") from None
        except OSError as error:
            raise UserError(
                f"{self.path} cannot be read: {error.strerror or error}.", "Check the path and its permissions."
            ) from None
        if "data" not in head:
            raise UserError(f'{self.path} has no "data" object.', OTHER_FILE_FIX)
        return Header(
            self._read_text(head, "task", None),
            self._read_text(head, "level", ""),
            self._read_text(head, "framework", framework),
            PROBE_FIELD in head,
            *_parse_notes(head.get(PROBE_FIELD)),
        )

    def _read_members(self, cursor: JsonCursor, columns: RunColumnsBuilder, size: int) -> dict[str, Any]:
        """Index the records, and return the other members of the file; ``data`` is None if it was read."""
        head: dict[str, Any] = {}
        first = cursor.peek()
        if not first:
            raise UserError(f"{self.path} is empty.", "Record the run again, or give another file.")
        if first != "{":
            raise UserError(f"{self.path} does not hold a JSON object.", OTHER_FILE_FIX)
        for key in cursor.iterate_members():
            if key == "data":
                self._read_records(cursor, columns, size)
                head[key] = None
            else:
                head[key] = cursor.skip()[2]
        if cursor.peek():
            raise JsonError("text follows the end of the object", cursor.offset)
        return head

    def _read_records(self, cursor: JsonCursor, columns: RunColumnsBuilder, size: int) -> None:
        """Index the records, and report the progress."""
        if cursor.peek() != "{":
            raise FieldError("data", "must be an object of records")
        reported_offset = 0
        for name in cursor.iterate_members(partial(self._take_ordinary, columns)):
            start, end, value = cursor.skip()
            self._add(name, start, end)
            add_record(columns, name, value)
            if end >= reported_offset + PROGRESS_INTERVAL_BYTES:
                reported_offset = end
                report_progress(f"reading {self.path.name}", end, size)

    def _read_text(self, head: dict[str, Any], key: str, default: str | None) -> str:
        value = head.get(key, default)
        if not isinstance(value, str) or (default is None and not value):
            problem = "must be a text that is not empty" if key in head else "is missing"
            raise UserError(f'{self.path}: "{key}" {problem}.', OTHER_FILE_FIX)
        return value

    def _take_ordinary(self, columns: RunColumnsBuilder, text: str, at: int, offset: int) -> int:
        """Read the ordinary records of a text from ``at`` on; return the position of the first other one."""
        records = read_ordinary(text, at)
        if records is None:
            return at
        columns.extend(records.values)
        for name, begin, end in zip(records.values.keys, records.begins, records.ends):
            self._add(name, offset + begin, offset + end)
        return records.end

    def _add(self, name: str, begin: int, end: int) -> None:
        if name in self._index:
            raise FieldError(f'data["{name}"]', "appears twice")
        name = sys.intern(name)
        self._index[name] = len(self._names)
        self._names.append(name)
        self._begins.append(begin)
        self._ends.append(end)

    @cached_property
    def mode(self) -> Mode:  # type: ignore[override]
        """The kind of data to compare.

        Raises:
            UserError: The run was recorded for another purpose.
        """
        if self.header.task == "tensor":
            return Mode.TENSOR
        if self.header.task == "statistics":
            return Mode.MD5 if self._has_checksum else Mode.STATISTICS
        raise UserError(
            f'{self.path} was recorded with task "{self.header.task}", which holds nothing to compare.',
            "Record with one of these tasks:",
            ("tensor", "statistics"),
        )

    # -- records and tensors -----------------------------------------------------------

    def names(self) -> Sequence[str]:
        """Return the names of the records, in the order of the run."""
        return self._names

    def find(self, key: str) -> int | None:
        """Return the index of the record ``key``, or None."""
        return self._index.get(key)

    def record(self, index: int) -> Record:
        """Return the record at ``index``."""
        return self.values.record(index)

    def fields(self, index: int) -> Any:
        """Return the JSON value of the record at ``index``."""
        self._file.seek(self._begins[index])
        return jsonstream.parse(self._file.read(self._ends[index] - self._begins[index]))

    def tensor(self, value: Value) -> np.ndarray[Any, Any]:
        """Return the data of a tensor value, memory-mapped if the file allows it.

        Raises:
            UnreadableTensor: There is no such file, or it is damaged.
        """
        return self._tensors(value)

    # -- the call stacks ---------------------------------------------------------------

    @property
    def stack_path(self) -> Path:
        """The path of the recorder's file of call stacks."""
        return self.path.parent / STACK_FILE

    def use_stacks(self, path: Path) -> None:
        """Read the call stacks in ``path``, for ``stack_of`` to return."""
        self._stacks = RecordedStacks.read(path)

    def stack_of(self, key: str) -> tuple[str, ...] | None:
        """Return the frames recorded for ``key``, innermost first, or None."""
        return self._stacks.get_frames(key) if self._stacks else None

    @cached_property
    def construct(self) -> Construct:
        """The module around each call, if the recorder noted it."""
        return read_construct(self.path.parent / CONSTRUCT_FILE)

    def close(self) -> None:
        """Close the files; tensors handed out stay readable."""
        self._file.close()
        self._tensors.close()


# -- reading of ``stack.json`` in both of its forms (docs/formats.md#stack-json) --------------------


class RecordedStacks:
    """The call stack of each record; equal stacks are kept once."""

    def __init__(self, frames: dict[str, tuple[str, ...]]) -> None:
        self._frames = frames

    @classmethod
    def read(cls, path: Path) -> RecordedStacks:
        """Return the stacks in a file of either form: frames per record, or records grouped by stack.

        msprobe 1.0 writes the first form, msprobe 8.3 and probe write the second.

        Raises:
            UserError: The file cannot be read or has neither form.
        """
        frames: dict[str, tuple[str, ...]] = {}
        for key, value in load_object(path, "stack file").items():
            if not isinstance(value, list):
                raise _create_error(path, key, "must be a list")
            if _is_group(value):
                names, lines = value
                shared = _parse_frames(path, key, lines)
                for name in names:
                    frames[sys.intern(str(name))] = shared
            else:
                frames[key] = _parse_frames(path, key, value)
        return cls(frames)

    def get_frames(self, key: str) -> tuple[str, ...] | None:
        """Return the frames recorded for ``key``, innermost first, or None."""
        return self._frames.get(key)


def _is_group(value: list[object]) -> bool:
    return len(value) == 2 and all(isinstance(part, list) for part in value)


def _parse_frames(path: Path, key: str, lines: object) -> tuple[str, ...]:
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise _create_error(path, key, "must hold the frames as texts")
    return tuple(lines)


def _create_error(path: Path, key: str, problem: str) -> UserError:
    return UserError(
        f'The stack file {path} is not in a known form: "{key}" {problem}.',
        "Remove the file to compare without call stacks, or record the run again.",
    )

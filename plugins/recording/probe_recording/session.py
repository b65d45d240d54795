"""The recording session of one step and rank: its records, call stacks and parents, and their files.

Captures report calls and modules to a session. It counts the calls, applies the filter, turns values into
leaves, and writes them to the step's directory. Each flush replaces whole files, so that the directory can
be read at any moment. The files are described in docs/formats.md#dump-json.
"""

from __future__ import annotations

import itertools
import json
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from probe_core.errors import UserError
from probe_core.store.names import is_gradient
from probe_recording.conditions import CONDITIONS_FILE, Conditions
from probe_recording.config import Config
from probe_recording.directory import DEBUG_FILE, DUMP_FILE, StepDirectory
from probe_recording.entry import Entry
from probe_recording.file_names import LOST_FIELD, PROBE_FIELD, SELECTED_TENSORS_FIELD, SLICES_FIELD, UNFINISHED_FIELD
from probe_recording.filters import Filter
from probe_recording.interrupts import defer_interrupts
from probe_recording.leaves import Save, Tree, drop_data_names, encode, encode_names, quote
from probe_recording.loss import WriteFailure, describe_failure
from probe_recording.overflow import has_overflow
from probe_recording.recorded_settings import SETTINGS_FIELD
from probe_recording.sites import Stack, StackTable
from probe_recording.slices import describe_slices
from probe_recording.step_phases import STEP_PHASES_FILE, StepPhases
from probe_recording.tensor_selection import TensorSelection
from probe_recording.tokens import TOKENS_FILE, TokenNote

if TYPE_CHECKING:
    from probe_recording.values import Collector


class Store(Protocol):
    """A store for the data of one step's tensors."""

    def save(self, name: str, tensor: Any) -> str | None:
        """Store a tensor and return its ``data_name``; return None if it cannot be stored."""

    def flush(self) -> None:
        """Write everything saved so far, so that it survives a crash."""

    def close(self) -> int:
        """Complete the files and return the number of bytes that the next file should reserve for its header."""


FLUSH_INTERVAL_RECORDS = 1000
"""Smallest number of new records between two flushes of a step; large steps wait for a quarter more records."""


class Session(ABC):
    """The recording of one step and rank; subclasses add how tensors of their framework are copied and stored.

    Args:
        config: The settings of the recording.
        directory: The directory of the step.
        shown: The directory as the user wrote it, for the header of the run.
        room: Bytes that the tensor file should reserve for its header.

    Attributes:
        framework: The name of the framework in the header of the run.
        suffix: The suffix of the names of tensor files.
        least_room: The smallest value of ``room``.
        collector: The converter of values into leaves.
        room: Bytes that the tensor file should reserve for its header.
        active: True while calls are recorded.
        config: The settings of the recording.
        filter: The filter of records.
        path: The directory of the step.
        overflows_left: The number of overflows to record until the search ends; negative for no end.
        on_last_overflow: A function to call after the last of these overflows.
        lost: The failed write that ended the recording; None if there was none.
        written_count: The number of records in the file on disk.
        on_loss: A function to call when a write fails, with the failure and the number of records.
        on_record: A function to call with each complete record; None for none.
        step_phases: The phases of the step; None if they are not recorded.
        conditions: The conditions of the step; None if they are not recorded.
        tokens: The samples and tokens of the batch; None if the script did not pass them.
        calls: The number of calls, including those that are not recorded, by name without count and phase.
        held: The tensors that are stored if their call differs from a golden; None without a golden.
    """

    framework = ""
    suffix = ".npy"
    least_room = 0
    collector: Collector

    def __init__(self, config: Config, directory: StepDirectory, shown: str, room: int = 0) -> None:
        self.config = config
        self.filter = Filter(config)
        self.active = False
        self.room = room
        self.lock = threading.RLock()
        self.path = directory.path
        self._directory = directory
        self._shown = shown
        self._notes: dict[str, Any] = {SETTINGS_FIELD: config.repeated} if config.repeated else {}
        if slices := describe_slices(config.slices, has_request=bool(config.request)):
            self._notes[SLICES_FIELD] = slices
        if config.task == "statistics" and config.saves_tensors:
            self._notes[SELECTED_TENSORS_FIELD] = True
        self.calls: dict[str, int] = {}
        self._order = itertools.count()
        self._entries: list[Entry] = []
        self._open_entries: dict[str, Entry] = {}
        self._parents: dict[str, str | None] = {}
        self._stacks = StackTable()
        self._held_tensors: dict[str, list[tuple[str, Any]]] = {}
        self._is_overflow_check = config.task == "overflow_check"
        self.overflows_left = config.overflow_count
        self.on_last_overflow: Callable[[], None] | None = None
        self.lost: WriteFailure | None = None
        self.written_count = 0
        self.on_loss: Callable[[WriteFailure, int], None] | None = None
        self.on_record: Callable[[], None] | None = None
        self.step_phases: StepPhases | None = None
        self.conditions: Conditions | None = None
        self.tokens: TokenNote | None = None
        self.held: TensorSelection | None = None
        self._unfinished_span = (0, 0)
        self._flushed_count = 0
        self._changed = False
        self._is_new = True
        self._logged_error_types: set[type[BaseException]] = set()
        self._store: Store | None = None
        self._saves_all = config.task == "tensor"

    # -- names ---------------------------------------------------------------------------

    def number(self, prefix: str) -> int:
        """Count a call of ``prefix`` and return its number, starting at 0."""
        with self.lock:
            count = self.calls.get(prefix, 0)
            self.calls[prefix] = count + 1
        return count

    def number_from(self, prefix: str, least: int) -> int:
        """Count a call of ``prefix`` whose number is ``least``, and return this number."""
        with self.lock:
            self.calls[prefix] = max(self.calls.get(prefix, 0), least + 1)
        return least

    def has(self, key: str) -> bool:
        """Return True if there is a record of this name."""
        with self.lock:
            return key in self._open_entries or any(entry.key == key for entry in self._entries)

    def take_back(self, prefix: str, number: int) -> None:
        """Undo the count of a call that raised, unless a later call has been counted since."""
        with self.lock:
            if self.calls.get(prefix) == number + 1:
                self.calls[prefix] = number
            for key in (f"{prefix}.{number}.forward", f"{prefix}.forward.{number}"):
                self._held_tensors.pop(key, None)
                if self.held is not None:
                    self.held.take_back(key)

    def wants(self, direction: str, side: str) -> bool:
        """Return True if ``data_mode`` selects this side of this direction."""
        return direction in self.config.directions and side in self.config.sides

    # -- reports of captures ---------------------------------------------------------------

    def save_for(self, key: str, fleeting: bool = False) -> Save | None:
        """Return the function that stores the tensors of a record, or None if they are not stored.

        Args:
            key: The name of the record.
            fleeting: True if the data may change before the record is complete.
        """
        if self.lost is not None:
            return None
        if self._is_overflow_check:
            return partial(self._hold_tensor, key, fleeting)
        if self._saves_all:
            return self.store_tensor
        listed = self.config.tensor_names
        if listed and any(part in key for part in listed):
            return self.store_tensor
        return None if self.held is None else self.held.save_for(key, fleeting)

    def add(self, key: str, fields: dict[str, Tree], stack: Stack | None = None, parent: str | None = None) -> Entry:
        """Add a complete record.

        Args:
            key: The name of the record.
            fields: Its content.
            stack: The call stack, or None.
            parent: The forward record of the surrounding module, or None.
        """
        entry = Entry(key, fields)
        if self.lost is not None:
            return entry
        if self._is_overflow_check and not self._store_if_overflowed(key, fields):
            return entry
        if self.on_record is not None:
            self.on_record()
        with self.lock:
            self._changed = True
            entry.order = next(self._order)
            self._entries.append(entry)
            if stack is not None and self.config.extra_info:
                self._stacks.add(key, stack)
            if self.config.modules:
                if parent is not None:
                    self._parents.setdefault(parent, None)  # optimizer and clip_grad are no modules
                self._parents[key] = parent
            if self.held is not None:
                self.held.add(entry, parent)
            if (
                len(self._entries) >= self._flushed_count + max(FLUSH_INTERVAL_RECORDS, self._flushed_count // 4)
                and not self.is_waiting
            ):
                self.flush()
        return entry

    def open(self, key: str, fields: dict[str, Tree], parent: str | None = None) -> Entry:
        """Open a record whose values arrive one by one, or return it if it is already open.

        Call ``note_arrival`` after each value and ``complete`` after the last.

        Args:
            key: The name of the record.
            fields: Its content so far.
            parent: The backward record of the surrounding module, or None.
        """
        with self.lock:
            entry = self._open_entries.get(key)
            if entry is None:
                entry = self._open_entries[key] = Entry(key, fields)
                if parent is not None or (self.config.modules and not is_gradient(key)):
                    self._parents[key] = parent
        return entry

    def note_arrival(self, entry: Entry) -> None:
        """Note that a value was added to an open record, which moves it to the end of the order."""
        with self.lock:
            self._changed = True
            entry.order = next(self._order)
            entry.text = None
            if self.held is not None and is_gradient(entry.key):
                self.held.note_arrival(entry)

    def complete(self, entry: Entry) -> None:
        """Close an open record."""
        with self.lock:
            self._changed = True
            if self._open_entries.pop(entry.key, None) is not None:
                if self._is_overflow_check and not self._store_if_overflowed(entry.key, entry.fields):
                    return
                self._entries.append(entry)
                if self.held is not None:
                    self.held.add(entry, self._parents.get(entry.key))

    def add_module(self, key: str, parent: str | None) -> None:
        """Note that a module's forward has begun, so that it precedes its children in ``construct.json``."""
        self._parents.setdefault(key, parent)

    def note(self, name: str, value: Any) -> None:
        """Add a field to probe's own section of the header."""
        self._notes[name] = value
        self._is_new = True

    def failed(self, stage: str, name: str, error: BaseException) -> None:
        """Write an error of the recorder to the error log of the step; the training continues.

        Only the first exception of each class is logged in a step.

        Args:
            stage: The part of the recorder that failed.
            name: The name of the record.
            error: The exception.
        """
        with self.lock:
            if type(error) in self._logged_error_types or self.lost is not None:
                return
            self._logged_error_types.add(type(error))
        stack = (line.rstrip() for line in traceback.format_stack(limit=40))
        problem = self._directory.log(stage, name, error, stack)
        if problem is not None:
            self.lose(problem)

    # -- values ----------------------------------------------------------------------------

    def store_tensor(self, name: str, tensor: Any) -> str | None:
        """Store a tensor and return its ``data_name``; None if it cannot be stored."""
        with self.lock:
            if self.lost is not None:
                return None
            try:
                if self._store is None:
                    self._store = self.new_store()
                return self._store.save(name, tensor)
            except (OSError, UserError) as error:
                self.lose(error)
                return None

    def _hold_tensor(self, key: str, fleeting: bool, name: str, tensor: Any) -> str:
        """Keep a tensor in memory until its record is complete and can be tested for overflows."""
        self._held_tensors.setdefault(key, []).append((name, self.copy_of(tensor) if fleeting else tensor))
        return name + self.suffix

    def _store_if_overflowed(self, key: str, fields: dict[str, Tree]) -> bool:
        """Store the tensors of a record that holds nan or an infinity, count it, and return True; else return False."""
        tensors = self._held_tensors.pop(key, [])
        if not self.has_overflowed(fields) or self.overflows_left == 0:
            return False
        with self.quiet():
            for name, tensor in tensors:
                self.store_tensor(name, tensor)
        if self.lost is not None:
            return False
        self.overflows_left -= 1
        if self.overflows_left == 0 and self.on_last_overflow is not None:
            self.on_last_overflow()
        return True

    # -- overridden by frameworks ---------------------------------------------------------

    @abstractmethod
    def quiet(self) -> AbstractContextManager[Any]:
        """Return a context inside which no computation is recorded."""

    @abstractmethod
    def will_have_gradient(self, value: Any) -> bool:
        """Return True if ``value`` is a tensor whose gradient will be computed."""

    def expect_gradient(self, tensor: Any, hook: Callable[[Any], None]) -> None:
        """Call ``hook`` with the gradient of a tensor when it arrives."""
        tensor.register_hook(hook)

    @abstractmethod
    def new_store(self) -> Store:
        """Return a new store for the tensors of this step; called when the first tensor is saved."""

    @abstractmethod
    def copy_of(self, tensor: Any) -> Any:
        """Return a copy of a tensor that may be overwritten."""

    def has_overflowed(self, fields: dict[str, Tree]) -> bool:
        """Return True if the record holds nan or an infinity."""
        return has_overflow(list(fields.values()))

    @property
    def is_waiting(self) -> bool:
        """True while statistics are still on a device."""
        return False

    def read_back(self) -> None:  # noqa: B027 - without devices there is nothing to fetch
        """Fetch the statistics that are still on a device."""

    @property
    def tensors(self) -> Path:
        """The directory for the data of tensors; reading this property creates the step's directory."""
        return self._directory.tensors

    @property
    def kernels(self) -> Path:
        """The directory for a device's own dump of kernels; reading it creates the step's directory."""
        return self._directory.kernels

    # -- writing ---------------------------------------------------------------------------

    def flush(self, although_empty: bool = False) -> None:
        """Write all records of the step so far, unless they are already written.

        A failed write ends the recording and does not raise.

        Args:
            although_empty: True to write the files even if there are no records.
        """
        has_begun = although_empty or self._directory.has_begun
        is_new = self._is_new or (self.step_phases is not None and self.step_phases.changed)
        if self.lost is not None or not (self._changed or (has_begun and is_new)):
            return
        try:
            with defer_interrupts(), self.lock, self.quiet():
                self.read_back()
                if self.held is not None:
                    self.held.compare()
                if self._store is not None:
                    self._store.flush()
                if self.config.extra_info and self.config.level != "debug":
                    self._write_extra()
                self._write_step_phases()
                self._write_conditions()
                self._write()
        except Exception as error:  # no error may end the training
            self.lose(error)

    def _list_waiting_entries(self) -> list[Entry]:
        """Return the open records in which at least one value arrived."""
        return [] if self._is_overflow_check else [entry for entry in self._open_entries.values() if entry.order >= 0]

    def _list_lines(self) -> list[str]:
        entries = [*self._entries, *self._list_waiting_entries()]
        entries.sort(key=lambda entry: entry.order)
        open_ids = {id(entry) for entry in self._open_entries.values()}
        lines = []
        for entry in entries:
            text = entry.text
            if text is None:
                text = encode(entry.fields) if self.held is None else self.held.encode_open(entry)
                text = f"{quote(entry.key)}: {text}"
                if id(entry) not in open_ids:
                    entry.text, entry.fields = text, {}
            lines.append(text)
        return lines

    def _write_extra(self) -> None:
        self._directory.write("stack.json", self._stacks.text())
        self._directory.write("construct.json", encode_names(self._parents))

    def _write_step_phases(self) -> None:
        if self.step_phases is not None and self.step_phases.changed:
            self._directory.write(STEP_PHASES_FILE, self.step_phases.text(self.framework))
        if self.tokens is not None:
            self._directory.write(TOKENS_FILE, self.tokens.text())
            self.tokens = None

    def _write_conditions(self) -> None:
        if self.conditions is not None and self.conditions.changed:
            self._directory.write(CONDITIONS_FILE, self.conditions.text(self.framework))

    def _write(self) -> None:
        """Write the records; the header marks the step as unfinished until ``close`` overwrites the mark."""
        lines = self._list_lines()
        saved = self._store is not None
        head = {
            "task": self.config.task,
            "level": self.config.level,
            "framework": self.framework,
            PROBE_FIELD: {UNFINISHED_FIELD: True, **self._notes},
            "dump_data_dir": f"{self._shown}/dump_tensor_data" if saved else None,
        }
        text = json.dumps(head)[:-1] + ', "data": {' + ("\n " if lines else "") + ",\n ".join(lines) + "\n}}\n"
        self._directory.write(self._file, text)
        mark = f'"{UNFINISHED_FIELD}": true' + (", " if self._notes else "")
        self._unfinished_span = text.index(mark), len(mark)
        self._flushed_count, self.written_count = len(self._entries), len(lines)
        self._changed = self._is_new = False

    @property
    def _file(self) -> str:
        return DEBUG_FILE if self.config.level == "debug" else DUMP_FILE

    def close(self) -> int:
        """Complete the step.

        Returns:
            Bytes that the tensor file of the next step should reserve for its header.
        """
        if self._is_overflow_check:
            for entry in [entry for entry in self._open_entries.values() if entry.order >= 0]:
                self.complete(entry)  # values that are still missing will not arrive
        self._finish_comparison()
        self.flush()
        room = self.room
        try:
            with defer_interrupts(), self.lock, self.quiet():
                if self._store is not None:
                    room = max(self.least_room, self._store.close())
                if self.lost is None and self._directory.has_begun:
                    self._write_conditions()
                if self.lost is None and self._unfinished_span[1]:
                    self._directory.overwrite_with_spaces(self._file, *self._unfinished_span)
        except Exception as error:  # no error may end the training
            self.lose(error)
        return room

    def _finish_comparison(self) -> None:
        """Store the tensors of the calls that differ from the golden and are not stored yet."""
        if self.held is None or self.lost is not None:
            return
        try:
            with self.lock:
                self.held.finish([*self._open_entries.values()])
                self._changed = True
        except Exception as error:  # no error may end the training
            self.failed("comparison with the golden", "", error)

    def lose(self, error: Exception) -> None:
        """End the recording after a failed write: write the remaining files if possible, and report the loss."""
        with defer_interrupts(), self.lock:
            if self.lost is not None:
                return
            self.lost = describe_failure(error, self.path)
            self.active = False
            self._held_tensors.clear()
            count = self.count
            if not isinstance(error, (OSError, UserError)):
                self._directory.log("write", self._file, error, [])
            with self.quiet():
                self._write_remaining_files()
            self._store = None
            if self.on_loss is not None:
                self.on_loss(self.lost, count)

    def _write_remaining_files(self) -> None:
        """Write each file separately, because the reason of the loss may concern only one of them."""
        assert self.lost is not None
        self.note(LOST_FIELD, self.lost.what)
        with suppress(Exception):
            self.read_back()
        try:
            if self._store is not None:
                self._store.close()
        except Exception:  # tensors saved after the last flush cannot be read
            for entry in [*self._entries, *self._open_entries.values()]:
                if entry.text is None:
                    drop_data_names(entry.fields)
        with suppress(Exception):
            if self.config.extra_info and self.config.level != "debug":
                self._write_extra()
        with suppress(Exception):
            self._write_step_phases()
        with suppress(Exception):
            self._write_conditions()
        with suppress(Exception):
            self._write()

    def rename(self, shown: str) -> None:
        """Change the name of the directory in the header of the run."""
        self._shown = shown

    @property
    def has_content(self) -> bool:
        """True if there are records, or files in the directory."""
        return bool(self.count) or self._directory.has_begun

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self._entries) + len(self._list_waiting_entries())

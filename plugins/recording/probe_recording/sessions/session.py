"""The recording session of one step and rank: its records, call stacks and parents, and their files.

Captures report calls and modules to a session. It counts the calls, applies the filter, turns values into
leaves, and writes them to the step's directory. Each flush replaces whole files, so that the directory can
be read at any moment. The files are described in docs/formats.md#dump-json.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_core.store.names import is_gradient
from probe_recording.interrupts import defer_interrupts
from probe_recording.run_directory.directory import StepDirectory
from probe_recording.run_directory.record_table import RecordTable
from probe_recording.run_directory.step_files import StepFiles
from probe_recording.sessions.framework_session import FrameworkSession, OverflowSearch
from probe_recording.sessions.loss import WriteFailure, describe_failure
from probe_recording.settings.config import Config
from probe_recording.settings.filters import Filter
from probe_recording.sites import Stack
from probe_recording.step_facts.conditions import Conditions
from probe_recording.step_facts.step_phases import StepPhases
from probe_recording.step_facts.tokens import BatchTokens
from probe_recording.values.arrays import CHECKSUMS, Array
from probe_recording.values.leaves import Save, Tree, drop_data_names, encode
from probe_recording.values.tensor_store import Entry, Store, TensorSelection

FLUSH_INTERVAL_RECORDS = 1000
"""Smallest number of new records between two flushes of a step; large steps wait for a quarter more records."""


class Session(FrameworkSession):
    """The recording of one step and rank; subclasses add how tensors of their framework are copied and stored.

    Args:
        config: The settings of the recording.
        directory: The directory of the step.
        shown: The directory as the user wrote it, for the header of the run.
        room: Bytes that the tensor file should reserve for its header.

    Attributes:
        room: Bytes that the tensor file should reserve for its header.
        active: True while calls are recorded.
        config: The settings of the recording.
        filter: The filter of records.
        path: The directory of the step.
        overflows: The search of the task ``overflow_check``.
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

    def __init__(self, config: Config, directory: StepDirectory, shown: str, room: int = 0) -> None:
        self.config = config
        self.filter = Filter(config)
        self.active = False
        self.room = room
        self.lock = threading.RLock()
        self.path = directory.path
        self.calls: dict[str, int] = {}
        self._files = StepFiles(config, directory, self.framework, shown)
        self._records = RecordTable(has_parents=config.modules)
        self._is_overflow_check = config.task == "overflow_check"
        self.overflows = OverflowSearch(self, self.store_tensor, config.overflow_count)
        self.lost: WriteFailure | None = None
        self.written_count = 0
        self.on_loss: Callable[[WriteFailure, int], None] | None = None
        self.on_record: Callable[[], None] | None = None
        self.step_phases: StepPhases | None = None
        self.conditions: Conditions | None = None
        self.tokens: BatchTokens | None = None
        self.held: TensorSelection | None = None
        self._flushed_count = 0
        self._changed = False
        self._logged_error_types: set[type[BaseException]] = set()
        self._store: Store | None = None
        self._saves_all = config.task == "tensor"

    @property
    def checksum(self) -> Callable[[Array], str] | None:
        """The function that computes the checksum of an array; None if the configuration selects none."""
        return CHECKSUMS.get(self.config.summary)

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
            return self._records.has(key)

    def take_back(self, prefix: str, number: int) -> None:
        """Undo the count of a call that raised, unless a later call has been counted since."""
        with self.lock:
            if self.calls.get(prefix) == number + 1:
                self.calls[prefix] = number
            for key in (f"{prefix}.{number}.forward", f"{prefix}.forward.{number}"):
                self.overflows.release(key)
                if self.held is not None:
                    self.held.take_back(key)

    def wants(self, direction: str, side: str) -> bool:
        """Return True if ``data_mode`` selects this side of this direction."""
        return direction in self.config.directions and side in self.config.sides

    # -- reports of captures ---------------------------------------------------------------

    def save_for(self, key: str, may_change: bool = False) -> Save | None:
        """Return the function that stores the tensors of a record, or None if they are not stored.

        Args:
            key: The name of the record.
            may_change: True if the data may change before the record is complete.
        """
        if self.lost is not None:
            return None
        if self._is_overflow_check:
            return partial(self.overflows.hold, key, may_change)
        if self._saves_all:
            return self.store_tensor
        listed = self.config.tensor_names
        if listed and any(part in key for part in listed):
            return self.store_tensor
        return None if self.held is None else self.held.save_for(key, may_change)

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
            self._records.add(entry, stack if self.config.extra_info else None, parent)
            if self.held is not None:
                self.held.add(entry, parent)
            interval = max(FLUSH_INTERVAL_RECORDS, self._flushed_count // 4)
            if len(self._records.complete_entries) >= self._flushed_count + interval and not self.is_waiting:
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
            return self._records.open(key, fields, parent)

    def note_arrival(self, entry: Entry) -> None:
        """Note that a value was added to an open record, which moves it to the end of the order."""
        with self.lock:
            self._changed = True
            self._records.note_arrival(entry)
            if self.held is not None and is_gradient(entry.key):
                self.held.note_arrival(entry)

    def complete(self, entry: Entry) -> None:
        """Close an open record."""
        with self.lock:
            self._changed = True
            if self._records.open_entries.pop(entry.key, None) is not None:
                if self._is_overflow_check and not self._store_if_overflowed(entry.key, entry.fields):
                    return
                self._records.complete_entries.append(entry)
                if self.held is not None:
                    self.held.add(entry, self._records.get_parent(entry.key))

    def add_module(self, key: str, parent: str | None) -> None:
        """Note that a module's forward has begun, so that it precedes its children in ``construct.json``."""
        self._records.add_module(key, parent)

    def note(self, name: str, value: Any) -> None:
        """Add a field to probe's own section of the header."""
        self._files.note(name, value)

    def log_failure(self, stage: str, name: str, error: BaseException) -> None:
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
        problem = self._files.directory.log(stage, name, error, stack)
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

    def _store_if_overflowed(self, key: str, fields: dict[str, Tree]) -> bool:
        """Store the tensors of a record that holds nan or an infinity, count it, and return True; else return False."""
        if not self.overflows.store_overflow(key, fields) or self.lost is not None:
            return False
        self.overflows.count_down()
        return True

    @property
    def tensors(self) -> Path:
        """The directory for the data of tensors; reading this property creates the step's directory."""
        return self._files.directory.tensors

    @property
    def kernels(self) -> Path:
        """The directory for a device's own dump of kernels; reading it creates the step's directory."""
        return self._files.directory.kernels

    # -- writing ---------------------------------------------------------------------------

    def flush(self, although_empty: bool = False) -> None:
        """Write all records of the step so far, unless they are already written.

        A failed write ends the recording and does not raise.

        Args:
            although_empty: True to write the files even if there are no records.
        """
        has_begun = although_empty or self._files.directory.has_begun
        is_new = self._files.is_new or (self.step_phases is not None and self.step_phases.changed)
        if self.lost is not None or not (self._changed or (has_begun and is_new)):
            return
        try:
            with defer_interrupts(), self.lock, self.quiet():
                self.read_back()
                if self.held is not None:
                    self.held.compare()
                if self._store is not None:
                    self._store.flush()
                self._files.write_extra(self._records)
                self._write_step_phases()
                self._files.write_conditions(self.conditions)
                self._write_records()
        except Exception as error:  # no error may end the training
            self.lose(error)

    def _list_waiting_entries(self) -> list[Entry]:
        """Return the open records in which at least one value arrived."""
        return [] if self._is_overflow_check else self._records.list_arrived()

    def _encode_entry(self, entry: Entry) -> str:
        return encode(entry.fields) if self.held is None else self.held.encode_open(entry)

    def _write_step_phases(self) -> None:
        self._files.write_step_phases(self.step_phases)
        if self.tokens is not None:
            self._files.write_tokens(self.tokens)
            self.tokens = None

    def _write_records(self) -> None:
        lines = self._records.encode_lines(self._list_waiting_entries(), self._encode_entry)
        self._files.write_records(lines, has_tensors=self._store is not None)
        self._flushed_count, self.written_count = len(self._records.complete_entries), len(lines)
        self._changed = False

    def close(self) -> int:
        """Complete the step.

        Returns:
            Bytes that the tensor file of the next step should reserve for its header.
        """
        if self._is_overflow_check:
            for entry in self._records.list_arrived():
                self.complete(entry)  # values that are still missing will not arrive
        self._finish_comparison()
        self.flush()
        room = self.room
        try:
            with defer_interrupts(), self.lock, self.quiet():
                if self._store is not None:
                    room = max(self.least_room, self._store.close())
                if self.lost is None and self._files.directory.has_begun:
                    self._files.write_conditions(self.conditions)
                if self.lost is None:
                    self._files.mark_complete()
        except Exception as error:  # no error may end the training
            self.lose(error)
        return room

    def _finish_comparison(self) -> None:
        """Store the tensors of the calls that differ from the golden and are not stored yet."""
        if self.held is None or self.lost is not None:
            return
        try:
            with self.lock:
                self.held.finish([*self._records.open_entries.values()])
                self._changed = True
        except Exception as error:  # no error may end the training
            self.log_failure("comparison with the golden", "", error)

    def lose(self, error: Exception) -> None:
        """End the recording after a failed write: write the remaining files if possible, and report the loss."""
        with defer_interrupts(), self.lock:
            if self.lost is not None:
                return
            self.lost = describe_failure(error, self.path)
            self.active = False
            self.overflows.clear()
            count = self.count
            if not isinstance(error, (OSError, UserError)):
                self._files.directory.log("write", self._files.name, error, [])
            with self.quiet():
                self._write_remaining_files()
            self._store = None
            if self.on_loss is not None:
                self.on_loss(self.lost, count)

    def _write_remaining_files(self) -> None:
        """Write each file separately, because the reason of the loss may concern only one of them."""
        assert self.lost is not None
        self._files.note_loss(self.lost.what)
        with suppress(Exception):
            self.read_back()
        try:
            if self._store is not None:
                self._store.close()
        except Exception:  # tensors saved after the last flush cannot be read
            for entry in [*self._records.complete_entries, *self._records.open_entries.values()]:
                if entry.text is None:
                    drop_data_names(entry.fields)
        with suppress(Exception):
            self._files.write_extra(self._records)
        with suppress(Exception):
            self._write_step_phases()
        with suppress(Exception):
            self._files.write_conditions(self.conditions)
        with suppress(Exception):
            self._write_records()

    def rename(self, shown: str) -> None:
        """Change the name of the directory in the header of the run."""
        self._files.shown = shown

    @property
    def has_content(self) -> bool:
        """True if there are records, or files in the directory."""
        return bool(self.count) or self._files.directory.has_begun

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self._records.complete_entries) + len(self._list_waiting_entries())

"""One step of one rank, being recorded: its records, call stacks and parents, and how they are written.

Captures tell a session what happened; it counts the calls, decides by the filter, turns values into
leaves, and writes what it holds to the step's directory, as a whole each time, so that what lies on
disk can be read at any moment.
"""

from __future__ import annotations

import itertools
import json
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from probe_core.errors import UserError
from probe_core.store.files import LOST, OURS, UNFINISHED
from probe_core.store.names import is_gradient
from probe_recording.config import Config
from probe_recording.directory import DEBUG_FILE, DUMP_FILE, StepDirectory
from probe_recording.filters import Filter
from probe_recording.interrupts import interrupts_deferred
from probe_recording.leaves import Save, Tree, encode, quoted, without_data
from probe_recording.loss import Failure, failure_of
from probe_recording.overflow import overflows
from probe_recording.sites import Stack, Stacks

if TYPE_CHECKING:
    from probe_recording.values import Collector


class Store(Protocol):
    """Where the data of one step's tensors go."""

    def save(self, name: str, tensor: Any) -> str | None:
        """Store ``tensor`` under ``name``; its ``data_name``, or None where it cannot be stored."""

    def flush(self) -> None:
        """Let everything saved so far survive a crash."""

    def close(self) -> int:
        """Complete what was written; the room that a header like this one should have."""


FLUSH_EVERY = 1000
"""New records after which a step is written although it goes on, and at least a quarter of all."""


@dataclass(slots=True, eq=False)
class Entry:
    """One record: its name, what stands in it, and when the last of it came."""

    key: str
    fields: dict[str, Tree]
    order: int = -1
    text: str | None = None


class Session(ABC):
    """What is recorded of one step and rank; a framework says how its tensors are kept and stored.

    Attributes:
        framework: Its name, as the head of the run says it.
        suffix: What names of tensor files end with.
        least_room: The least that ``room`` is.
        room: Bytes that a tensor file should keep free for its header.
        active: False while nothing is to be recorded.
        config: What to record.
        filter: Which records are wanted.
        path: The directory of the step.
        lost: The write that failed, after which nothing more is recorded; None where all is well.
        kept: How many records the file on disk holds.
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
        self._notes: dict[str, Any] = {}
        self._counts: dict[str, int] = {}
        self._order = itertools.count()
        self._entries: list[Entry] = []
        self._open: dict[str, Entry] = {}
        self._parents: dict[str, str | None] = {}
        self._stacks = Stacks()
        self._held: dict[str, list[tuple[str, Any]]] = {}
        self._overflow = config.task == "overflow_check"
        self.overflows_left = config.overflow_count
        self.on_last_overflow: Callable[[], None] | None = None
        self.lost: Failure | None = None
        self.kept = 0
        self.on_loss: Callable[[Failure, int], None] | None = None
        self._mark = (0, 0)
        self._flushed = 0
        self._changed = False
        self._is_new = True
        self._errors: set[type[BaseException]] = set()
        self._store: Store | None = None
        self._saves_all = config.task == "tensor"

    # -- names ---------------------------------------------------------------------------

    def number(self, prefix: str) -> int:
        """How many calls of ``prefix`` came before this one."""
        with self.lock:
            count = self._counts.get(prefix, 0)
            self._counts[prefix] = count + 1
        return count

    def number_from(self, prefix: str, least: int) -> int:
        """``least``, which from now on counts as a call of ``prefix``."""
        with self.lock:
            self._counts[prefix] = max(self._counts.get(prefix, 0), least + 1)
        return least

    def has(self, key: str) -> bool:
        """Is there a record of this name?"""
        with self.lock:
            return key in self._open or any(entry.key == key for entry in self._entries)

    def take_back(self, prefix: str, number: int) -> None:
        """The call did not come to an end: its number goes to the next one, if there was none since."""
        with self.lock:
            if self._counts.get(prefix) == number + 1:
                self._counts[prefix] = number
            for key in (f"{prefix}.{number}.forward", f"{prefix}.forward.{number}"):
                self._held.pop(key, None)

    def wants(self, direction: str, side: str) -> bool:
        """Does ``data_mode`` ask for this side of this direction?"""
        return direction in self.config.directions and side in self.config.sides

    # -- what captures tell ----------------------------------------------------------------

    def save_for(self, key: str, fleeting: bool = False) -> Save | None:
        """What keeps the data of the tensors of ``key``; None where they are not to be kept.

        ``fleeting``: they may have changed by the time the record is complete.
        """
        if self.lost is not None:
            return None
        if self._overflow:
            return partial(self._hold, key, fleeting)
        if self._saves_all:
            return self._store_tensor
        listed = self.config.tensor_names
        return self._store_tensor if listed and any(part in key for part in listed) else None

    def add(
        self, key: str, fields: dict[str, Tree], stack: Stack | None = None, parent: str | None = None
    ) -> Entry:
        """A record that is complete."""
        entry = Entry(key, fields)
        if self.lost is not None:
            return entry
        if self._overflow and not self._overflowed(key, fields):
            return entry
        with self.lock:
            self._changed = True
            entry.order = next(self._order)
            self._entries.append(entry)
            if stack is not None and self.config.extra_info:
                self._stacks.add(key, stack)
            if self.config.modules:
                if parent is not None:
                    self._parents.setdefault(parent, None)  # the optimizer, or clip_grad
                self._parents[key] = parent
            if (
                len(self._entries) >= self._flushed + max(FLUSH_EVERY, self._flushed // 4)
                and not self.is_waiting
            ):
                self.flush()
        return entry

    def open(self, key: str, fields: dict[str, Tree], parent: str | None = None) -> Entry:
        """A record whose values come one by one; ``arrived`` tells of each, ``complete`` of the end."""
        with self.lock:
            entry = self._open.get(key)
            if entry is None:
                entry = self._open[key] = Entry(key, fields)
                if parent is not None or (self.config.modules and not is_gradient(key)):
                    self._parents[key] = parent
        return entry

    def arrived(self, entry: Entry) -> None:
        """Something was filled into an open record: it stands where the last of it came."""
        with self.lock:
            self._changed = True
            entry.order = next(self._order)
            entry.text = None

    def complete(self, entry: Entry) -> None:
        """Nothing more will be filled in."""
        with self.lock:
            self._changed = True
            if self._open.pop(entry.key, None) is not None:
                if self._overflow and not self._overflowed(entry.key, entry.fields):
                    return
                self._entries.append(entry)

    def module_began(self, key: str, parent: str | None) -> None:
        """A module's forward has begun: it stands in the tree before what runs in it."""
        self._parents.setdefault(key, parent)

    def note(self, name: str, value: Any) -> None:
        """Something that the head of the run says."""
        self._notes[name] = value

    def failed(self, stage: str, name: str, error: BaseException) -> None:
        """The recorder itself failed: the step's log says how, training goes on."""
        with self.lock:
            if type(error) in self._errors or self.lost is not None:
                return
            self._errors.add(type(error))
        stack = (line.rstrip() for line in traceback.format_stack(limit=40))
        problem = self._directory.log(stage, name, error, stack)
        if problem is not None:
            self.lose(problem)

    # -- values ----------------------------------------------------------------------------

    def _store_tensor(self, name: str, tensor: Any) -> str | None:
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

    def _hold(self, key: str, fleeting: bool, name: str, tensor: Any) -> str:
        """Keep a tensor until it is known whether its record overflows."""
        self._held.setdefault(key, []).append((name, self.copy_of(tensor) if fleeting else tensor))
        return name + self.suffix

    def _overflowed(self, key: str, fields: dict[str, Tree]) -> bool:
        """Is there nan or an infinity in the record? Then its tensors are stored, and it is counted."""
        held = self._held.pop(key, [])
        if not self.has_overflowed(fields) or self.overflows_left == 0:
            return False
        with self.quiet():
            for name, tensor in held:
                self._store_tensor(name, tensor)
        if self.lost is not None:
            return False
        self.overflows_left -= 1
        if self.overflows_left == 0 and self.on_last_overflow is not None:
            self.on_last_overflow()
        return True

    # -- what a framework says -------------------------------------------------------------

    @abstractmethod
    def quiet(self) -> AbstractContextManager[Any]:
        """Nothing that is computed inside is recorded."""

    @abstractmethod
    def will_have_gradient(self, value: Any) -> bool:
        """Is ``value`` a tensor that a gradient is computed for?"""

    def expect_gradient(self, tensor: Any, hook: Callable[[Any], None]) -> None:
        """Have ``hook`` told of the tensor's gradient."""
        tensor.register_hook(hook)

    @abstractmethod
    def new_store(self) -> Store:
        """Where the data of this step's tensors go; called once, when the first of them comes."""

    @abstractmethod
    def copy_of(self, tensor: Any) -> Any:
        """A copy of ``tensor``, which will change."""

    def has_overflowed(self, fields: dict[str, Tree]) -> bool:
        """Is there nan or an infinity in the record?"""
        return overflows(list(fields.values()))

    @property
    def is_waiting(self) -> bool:
        """True while statistics lie on a device."""
        return False

    def read_back(self) -> None:  # noqa: B027 - without devices there is nothing to fetch
        """Fetch the statistics that lie on devices."""

    @property
    def tensors(self) -> Path:
        """The directory of the data of tensors; it is made when a store makes it."""
        return self._directory.tensors

    @property
    def kernels(self) -> Path:
        """Where a device's own dump of kernels goes."""
        return self._directory.kernels

    # -- writing ---------------------------------------------------------------------------

    def flush(self, although_empty: bool = False) -> None:
        """Write everything recorded so far, if it is not written yet.

        What cannot be written ends the recording, and nothing else.
        """
        has_begun = although_empty or self._directory.has_begun
        if self.lost is not None or not (self._changed or (has_begun and self._is_new)):
            return
        try:
            with interrupts_deferred(), self.lock, self.quiet():
                self.read_back()
                if self._store is not None:
                    self._store.flush()
                if self.config.extra_info and self.config.level != "debug":
                    self._write_extra()
                self._write()
        except Exception as error:  # whatever it is, the training goes on
            self.lose(error)

    def _waiting(self) -> list[Entry]:
        """The open records in which something arrived."""
        return [] if self._overflow else [entry for entry in self._open.values() if entry.order >= 0]

    def _lines(self) -> list[str]:
        entries = [*self._entries, *self._waiting()]
        entries.sort(key=lambda entry: entry.order)
        open_ones = {id(entry) for entry in self._open.values()}
        lines = []
        for entry in entries:
            text = entry.text
            if text is None:
                text = f"{quoted(entry.key)}: {encode(entry.fields)}"
                if id(entry) not in open_ones:
                    entry.text, entry.fields = text, {}
            lines.append(text)
        return lines

    def _write_extra(self) -> None:
        self._directory.write("stack.json", self._stacks.text())
        self._directory.write("construct.json", json.dumps(self._parents, indent=1))

    def _write(self) -> None:
        """Write the records. The head says that the step is unfinished, until ``close`` blanks that out."""
        lines = self._lines()
        saved = self._store is not None
        head = {
            "task": self.config.task,
            "level": self.config.level,
            "framework": self.framework,
            OURS: {UNFINISHED: True, **self._notes},
            "dump_data_dir": f"{self._shown}/dump_tensor_data" if saved else None,
        }
        text = (
            json.dumps(head)[:-1] + ', "data": {' + ("\n " if lines else "") + ",\n ".join(lines) + "\n}}\n"
        )
        self._directory.write(self._file, text)
        mark = f'"{UNFINISHED}": true' + (", " if self._notes else "")
        self._mark = text.index(mark), len(mark)
        self._flushed, self.kept = len(self._entries), len(lines)
        self._changed = self._is_new = False

    @property
    def _file(self) -> str:
        return DEBUG_FILE if self.config.level == "debug" else DUMP_FILE

    def close(self) -> int:
        """Complete the step; how much room the header of the next step's tensor file should have."""
        if self._overflow:
            for entry in [entry for entry in self._open.values() if entry.order >= 0]:
                self.complete(entry)  # whatever more was expected does not come
        self.flush()
        room = self.room
        try:
            with interrupts_deferred(), self.lock:
                if self._store is not None:
                    room = max(self.least_room, self._store.close())
                if self.lost is None and self._mark[1]:
                    self._directory.blank(self._file, *self._mark)
        except Exception as error:  # whatever it is, the training goes on
            self.lose(error)
        return room

    def lose(self, error: Exception) -> None:
        """Record nothing more, for something could not be written; write what still can be, and say so."""
        with interrupts_deferred(), self.lock:
            if self.lost is not None:
                return
            self.lost = failure_of(error, self.path)
            self.active = False
            self._held.clear()
            count = self.count
            if not isinstance(error, (OSError, UserError)):
                self._directory.log("write", self._file, error, [])
            with self.quiet():
                self._save_the_rest()
            self._store = None
            if self.on_loss is not None:
                self.on_loss(self.lost, count)

    def _save_the_rest(self) -> None:
        """Write what is recorded, each file by itself: one may fail for a reason that others do not have."""
        assert self.lost is not None
        self.note(LOST, self.lost.what)
        with suppress(Exception):
            self.read_back()
        try:
            if self._store is not None:
                self._store.close()
        except Exception:  # then what came after the last flush cannot be read
            for entry in [*self._entries, *self._open.values()]:
                if entry.text is None:
                    without_data(entry.fields)
        with suppress(Exception):
            if self.config.extra_info and self.config.level != "debug":
                self._write_extra()
        with suppress(Exception):
            self._write()

    @property
    def count(self) -> int:
        """How many records there are."""
        return len(self._entries) + len(self._waiting())

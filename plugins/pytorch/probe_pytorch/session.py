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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from probe_core.store.names import is_gradient
from probe_pytorch import compat
from probe_pytorch.config import Config
from probe_pytorch.filters import Filter
from probe_pytorch.leaves import TensorLeaf, Tree, encode, quoted
from probe_pytorch.overflow import device_flags, overflows
from probe_pytorch.sites import Stack, Stacks
from probe_pytorch.statistics import from_results
from probe_pytorch.storage.bytes import CHECKSUMS
from probe_pytorch.storage.directory import DEBUG_FILE, DUMP_FILE, StepDirectory
from probe_pytorch.storage.tensors import (
    HEADER_ROOM,
    SUFFIX,
    DelayedStore,
    FileStore,
    PackedStore,
    TensorStore,
)
from probe_pytorch.values import Collector, Save

FLUSH_EVERY = 1000
"""New records after which a step is written although it goes on, and at least a quarter of all."""


@dataclass(slots=True, eq=False)
class Entry:
    """One record: its name, what stands in it, and when the last of it came."""

    key: str
    fields: dict[str, Tree]
    order: int = -1
    text: str | None = None


class Session:
    """What is recorded of one step and rank.

    Attributes:
        active: False while nothing is to be recorded.
        config: What to record.
        filter: Which records are wanted.
        path: The directory of the step.
    """

    def __init__(self, config: Config, directory: StepDirectory, shown: str, room: int = HEADER_ROOM) -> None:
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
        self._held: dict[str, list[tuple[str, torch.Tensor]]] = {}
        self._overflow = config.task == "overflow_check"
        self._flags = device_flags() if self._overflow else None
        self.overflows_left = config.overflow_count
        self.on_last_overflow: Callable[[], None] | None = None
        self._on_device: list[tuple[torch.Tensor, TensorLeaf]] = []
        self._flushed = 0
        self._changed = False
        self._is_new = True
        self._errors: set[type[BaseException]] = set()
        self._store: TensorStore | None = None
        self.collector = Collector(
            CHECKSUMS.get(config.summary),
            None if self._overflow else self._keep,
            wide=config.precision == "high",
            measured=config.task != "structure",
            failed=self.failed,
        )
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
                and not self._on_device
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
            if type(error) in self._errors:
                return
            self._errors.add(type(error))
        stack = (line.rstrip() for line in traceback.format_stack(limit=40))
        self._directory.log(stage, name, error, stack)

    # -- values ----------------------------------------------------------------------------

    def _keep(self, results: torch.Tensor, leaf: TensorLeaf) -> None:
        self._on_device.append((results, leaf))

    def _store_tensor(self, name: str, tensor: torch.Tensor) -> str | None:
        with self.lock:
            if self._store is None:
                self._store = self._new_store()
            return self._store.save(name, tensor)

    def _hold(self, key: str, fleeting: bool, name: str, tensor: torch.Tensor) -> str:
        """Keep a tensor until it is known whether its record overflows."""
        self._held.setdefault(key, []).append((name, tensor.detach().clone() if fleeting else tensor))
        return name + SUFFIX

    def _overflowed(self, key: str, fields: dict[str, Tree]) -> bool:
        """Is there nan or an infinity in the record? Then its tensors are stored, and it is counted."""
        held = self._held.pop(key, [])
        raised = self._flags() if self._flags is not None else overflows(list(fields.values()))
        if not raised or self.overflows_left == 0:
            return False
        with compat.quiet():
            for name, tensor in held:
                self._store_tensor(name, tensor)
        self.overflows_left -= 1
        if self.overflows_left == 0 and self.on_last_overflow is not None:
            self.on_last_overflow()
        return True

    def _new_store(self) -> TensorStore:
        store: TensorStore
        if self.config.store == "packed":
            store = PackedStore(self._directory.tensors, self.room)
        else:
            store = FileStore(self._directory.tensors)
        return DelayedStore(store) if self.config.asynchronous else store

    def read_back(self) -> None:
        """Fetch the statistics that lie on devices, all of one device at once."""
        kept, self._on_device = self._on_device, []
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[torch.Tensor, TensorLeaf]]] = {}
        for results, leaf in kept:
            groups.setdefault((results.device, results.dtype), []).append((results, leaf))
        for found in groups.values():
            values = torch.stack([results for results, _ in found]).cpu().tolist()
            for four, (_, leaf) in zip(values, found):
                leaf.statistics = from_results(four, getattr(torch, leaf.dtype.removeprefix("torch.")))

    # -- writing ---------------------------------------------------------------------------

    def flush(self, although_empty: bool = False) -> None:
        """Write everything recorded so far, if it is not written yet."""
        has_begun = although_empty or self._store is not None
        if not self._changed and not (has_begun and self._is_new):
            return
        with self.lock, compat.quiet():
            self.read_back()
            if self._store is not None:
                self._store.flush()
            waiting = [] if self._overflow else [e for e in self._open.values() if e.order >= 0]
            entries = [*self._entries, *waiting]
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
            self._flushed = len(self._entries)
            self._changed = self._is_new = False  # said once: what cannot be written raises here, not at step
            self._write(lines)

    def _write(self, lines: list[str]) -> None:
        saved = self._store is not None
        head = {
            "task": self.config.task,
            "level": self.config.level,
            "framework": "pytorch",
            **({"probe": self._notes} if self._notes else {}),
            "dump_data_dir": f"{self._shown}/dump_tensor_data" if saved else None,
        }
        text = (
            json.dumps(head)[:-1] + ', "data": {' + ("\n " if lines else "") + ",\n ".join(lines) + "\n}}\n"
        )
        if self.config.level == "debug":
            self._directory.write(DEBUG_FILE, text)
            return
        if self.config.extra_info:
            self._directory.write("stack.json", self._stacks.text())
            self._directory.write("construct.json", json.dumps(self._parents, indent=1))
        self._directory.write(DUMP_FILE, text)

    def close(self) -> int:
        """Complete the step; how much room the header of the next step's tensor file should have."""
        if self._overflow:
            for entry in [entry for entry in self._open.values() if entry.order >= 0]:
                self.complete(entry)  # whatever more was expected does not come
        self.flush()
        with self.lock:
            return self.room if self._store is None else max(HEADER_ROOM, self._store.close())

    @property
    def count(self) -> int:
        """How many records there are."""
        return len(self._entries) + sum(entry.order >= 0 for entry in self._open.values())

"""The records of a session, with their call stacks and the modules that they were made in."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from probe_core.store.names import is_gradient
from probe_recording.sites import Stack, StackTable
from probe_recording.values.leaves import Tree, encode_names, quote
from probe_recording.values.tensor_store import Entry


class RecordTable:
    """The records of a session: those that are complete, and those whose values are still arriving.

    Args:
        has_parents: True to note the module that each record was made in.

    Attributes:
        complete_entries: The complete records.
        open_entries: The records whose values are still arriving, by their names.
    """

    def __init__(self, *, has_parents: bool) -> None:
        self.complete_entries: list[Entry] = []
        self.open_entries: dict[str, Entry] = {}
        self._has_parents = has_parents
        self._order = itertools.count()
        self._parents: dict[str, str | None] = {}
        self._stacks = StackTable()

    def has(self, key: str) -> bool:
        """Return True if there is a record of this name."""
        return key in self.open_entries or any(entry.key == key for entry in self.complete_entries)

    def add(self, entry: Entry, stack: Stack | None, parent: str | None) -> None:
        """Add a complete record.

        Args:
            entry: The record.
            stack: Its call stack; None to note none.
            parent: The forward record of the surrounding module, or None.
        """
        entry.order = next(self._order)
        self.complete_entries.append(entry)
        if stack is not None:
            self._stacks.add(entry.key, stack)
        if self._has_parents:
            if parent is not None:
                self._parents.setdefault(parent, None)  # optimizer and clip_grad are no modules
            self._parents[entry.key] = parent

    def open(self, key: str, fields: dict[str, Tree], parent: str | None) -> Entry:
        """Open a record, or return it if it is already open.

        Args:
            key: The name of the record.
            fields: Its content so far.
            parent: The backward record of the surrounding module, or None.
        """
        entry = self.open_entries.get(key)
        if entry is None:
            entry = self.open_entries[key] = Entry(key, fields)
            if parent is not None or (self._has_parents and not is_gradient(key)):
                self._parents[key] = parent
        return entry

    def note_arrival(self, entry: Entry) -> None:
        """Move an open record to the end of the order, because a value was added to it."""
        entry.order = next(self._order)
        entry.text = None

    def add_module(self, key: str, parent: str | None) -> None:
        """Note a module before the records inside it."""
        self._parents.setdefault(key, parent)

    def get_parent(self, key: str) -> str | None:
        """Return the record of the module around a record; None outside of modules."""
        return self._parents.get(key)

    def list_arrived(self) -> list[Entry]:
        """Return the open records in which at least one value arrived."""
        return [entry for entry in self.open_entries.values() if entry.order >= 0]

    def encode_lines(self, arrived: Sequence[Entry], encode_entry: Callable[[Entry], str]) -> list[str]:
        """Return the JSON of the records in their order, each with its name.

        Args:
            arrived: The open records to include.
            encode_entry: A function that returns the JSON of a record.
        """
        entries = [*self.complete_entries, *arrived]
        entries.sort(key=lambda entry: entry.order)
        open_ids = {id(entry) for entry in self.open_entries.values()}
        lines = []
        for entry in entries:
            text = entry.text
            if text is None:
                text = f"{quote(entry.key)}: {encode_entry(entry)}"
                if id(entry) not in open_ids:
                    entry.text, entry.fields = text, {}
            lines.append(text)
        return lines

    def encode_stacks(self) -> str:
        """Return the content of ``stack.json``."""
        return self._stacks.text()

    def encode_parents(self) -> str:
        """Return the content of ``construct.json``."""
        return encode_names(self._parents)

"""The interface of the stores of tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from probe_recording.values.leaves import Save, Tree


@dataclass(slots=True, eq=False)
class Entry:
    """A record of a session.

    Attributes:
        key: Its name.
        fields: Its content, a tree of leaves.
        order: Its position in the file: records are in the order of their last values. -1 before the first value.
        text: Its JSON, cached once the record is complete and written.
    """

    key: str
    fields: dict[str, Tree]
    order: int = -1
    text: str | None = None


class Store(Protocol):
    """A store for the data of one step's tensors."""

    def save(self, name: str, tensor: Any) -> str | None:
        """Store a tensor and return its ``data_name``; return None if it cannot be stored."""

    def flush(self) -> None:
        """Write everything saved so far, so that it survives a crash."""

    def close(self) -> int:
        """Complete the files and return the number of bytes that the next file should reserve for its header."""


class TensorSelection(Protocol):
    """A holder of tensors that are stored only if their record is chosen.

    The session calls each method with its lock held, except for ``save_for``.
    """

    def save_for(self, key: str, may_change: bool) -> Save | None:
        """Return the function that holds the tensors of a record; None if the record will not keep them.

        Args:
            key: The name of the record.
            may_change: True if the data may change before the record is complete.
        """

    def take_back(self, key: str) -> None:
        """Release the tensors of a call that raised an exception."""

    def add(self, entry: Entry, parent: str | None) -> None:
        """Receive a complete record, with the record of the surrounding module."""

    def note_arrival(self, entry: Entry) -> None:
        """Receive a record of gradients of parameters to which a gradient was added."""

    def compare(self) -> None:
        """Choose among the complete records, as far as that is possible now."""

    def finish(self, open_entries: Iterable[Entry]) -> None:
        """Choose among all records.

        Args:
            open_entries: The records that are not complete.
        """

    def encode_open(self, entry: Entry) -> str:
        """Return the JSON of a record that is not complete, without the names of tensor files that are held."""

"""A recorded run as matching, the flow and the kits see it, whatever format it is stored in."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from probe_core.errors import UserError
from probe_core.model.values import Mode, Record, Value

DEEPEST = 200
KEPT_SLOTS = 120_000
"""Slots of a run that stay in memory once parsed; what lies behind is parsed again when needed."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the recorder said of the run.

    Attributes:
        is_ours: True for a run that probe itself recorded.
        unfinished: Why records may be missing at the end; empty where none are.
    """

    task: str
    level: str
    framework: str
    is_ours: bool = False
    unfinished: str = ""


class Construct:
    """The parent of each record; empty where the recorder noted none, as at level L1."""

    def __init__(self, parents: Mapping[str, str]) -> None:
        self._parents = parents

    def renamed(self, rename: Callable[[str], str]) -> Construct:
        """The same under other names."""
        return Construct({rename(child): rename(parent) for child, parent in self._parents.items()})

    def modules(self) -> set[str]:
        """All modules that something was called in."""
        return set(self._parents.values())

    def ancestors(self, key: str) -> list[str]:
        """The modules around ``key``, innermost first."""
        found: list[str] = []
        while (parent := self._parents.get(key)) and len(found) < DEEPEST:
            found.append(parent)
            key = parent
        return found


class Run(Protocol):
    """A recorded run: records in the order of the run, their tensors, and what is known around them.

    A reader's ``open`` returns one. A class of runs subclasses it for the defaults below, or ``HeldRun``,
    which lacks nothing but ``tensor``.

    Attributes:
        path: The record file.
        header: What the recorder said of the run.
        mode: What can be compared: tensors, statistics or checksums.
        starts: The number of each record's first slot, counted through the run, and of all slots.
        signatures: The ``signature`` of each record: equal where two records' rows have equal names.
        is_debug: True for variables saved on their own.
        is_loose: True for a view in other words than the run's own, whose calls are recognised by their
            tensors alone.
    """

    path: Path
    header: Header
    mode: Mode
    starts: Sequence[int]
    signatures: Sequence[int]
    is_debug: bool = False
    is_loose: bool = False

    def names(self) -> Sequence[str]:
        """The names of the records, in the order of the run."""

    def find(self, key: str) -> int | None:
        """The index of the record called ``key``."""

    def record(self, index: int) -> Record:
        """The record at ``index``."""

    def tensor(self, value: Value) -> np.ndarray[Any, Any]:
        """The data of a tensor value.

        Raises:
            UnreadableTensor: They are missing or damaged.
        """

    def __len__(self) -> int:
        return len(self.names())

    def records(self) -> Iterator[Record]:
        """All records, in the order of the run."""
        return map(self.record, range(len(self)))

    @property
    def shown(self) -> Run:
        """The run whose names and values a person sees: itself, or the one that it is a view of."""
        return self

    @property
    def construct(self) -> Construct:
        """Which module each call was made in, as far as the recorder noted it."""
        return Construct({})

    @property
    def stack_path(self) -> Path | None:
        """Where the recorder puts the call stacks; None for a recorder that notes none in a file."""
        return None

    def use_stacks(self, path: Path) -> None:
        """Read the call stacks in ``path``; ``stack_of`` answers from then on."""
        raise UserError(f"{self.path} takes no file of call stacks.", "Leave stack_path out.")

    def stack_of(self, key: str) -> tuple[str, ...] | None:
        """The frames recorded for ``key``, innermost first; None where none are known."""
        return None

    def close(self) -> None:
        """Let the files go; tensors handed out stay readable."""
        return


class HeldRun(Run):
    """A run whose records are all in memory. A subclass adds ``tensor``, and what else its format holds."""

    def __init__(self, path: Path, header: Header, mode: Mode, records: Iterable[Record]) -> None:
        self.path, self.header, self.mode = path, header, mode
        self._records = list(records)
        self._names = [record.key for record in self._records]
        self._index = {key: index for index, key in enumerate(self._names)}
        self.starts = array("q", accumulate((len(record.slots) for record in self._records), initial=0))
        self.signatures = array("q", map(signature, self._records))

    def names(self) -> Sequence[str]:
        """The names of the records, in the order of the run."""
        return self._names

    def find(self, key: str) -> int | None:
        """The index of the record called ``key``."""
        return self._index.get(key)

    def record(self, index: int) -> Record:
        """The record at ``index``."""
        return self._records[index]


def signature(record: Record) -> int:
    """A hash of the names of a record's rows."""
    return hash(tuple([slot.name for slot in record.slots]))

"""A recorded run, independent of its storage format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from probe_core.errors import UserError
from probe_core.model.columns import ValueColumns, create_columns
from probe_core.model.values import Mode, Record, Value

MAX_ANCESTORS = 200
"""Limit on the number of modules around a call, against cycles in damaged files."""
MAX_CACHED_SLOTS = 120_000
"""Number of slots that a view of a run caches; others are created again when they are needed."""


@dataclass(frozen=True, slots=True)
class Header:
    """The recorder's own statements about a run.

    Attributes:
        is_ours: True for a run that probe itself recorded.
        unfinished: The reason why records may be missing at the end; empty if none are.
        families: The families of calls that the recorder captures and others may not, each with the scopes
            of its records (docs/formats.md#families).
        unrecorded: The number of calls of each operator that the recorder saw and did not record.
        slices: The parts of tensors that were recorded, as text; empty for whole tensors.
        selects_tensors: True if a run of statistics saves the tensors of selected calls.
    """

    task: str
    level: str
    framework: str
    is_ours: bool = False
    unfinished: str = ""
    families: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unrecorded: Mapping[str, int] = field(default_factory=dict)
    slices: str = ""
    selects_tensors: bool = False


class Construct:
    """The parent module of each record; empty if none was recorded, as at level L1."""

    def __init__(self, parents: Mapping[str, str]) -> None:
        self._parents = parents
        self._around: dict[str, tuple[str, ...]] = {}

    def rename_modules(self, rename: Callable[[str], str]) -> Construct:
        """Return a copy with all names passed through ``rename``."""
        return Construct({rename(child): rename(parent) for child, parent in self._parents.items()})

    def modules(self) -> set[str]:
        """Return all modules that contain a record."""
        return set(self._parents.values())

    def ancestors(self, key: str) -> tuple[str, ...]:
        """Return the modules around ``key``, innermost first; calls of one module share the same tuple."""
        parent = self._parents.get(key)
        if not parent:
            return ()
        if parent not in self._around:
            ancestors = [parent]
            while (above := self._parents.get(ancestors[-1])) and len(ancestors) < MAX_ANCESTORS:
                ancestors.append(above)
            self._around[parent] = tuple(ancestors)
        return self._around[parent]


class Run(Protocol):
    """A recorded run: its records in order, their tensors, and context such as call stacks.

    A reader's ``open`` returns a run. Readers subclass ``Run`` for the defaults below, or ``HeldRun``, which
    needs only ``tensor``.

    Attributes:
        path: The record file.
        header: The recorder's own statements about the run.
        mode: The kind of data to compare: tensors, statistics or checksums.
        starts: The index of each record's first slot among all slots of the run, then the number of slots.
        signatures: The ``signature`` of each record; records with equal row names have equal signatures.
        is_debug: True for variables that a script saved on their own.
        is_loose: True for a view with translated names, whose calls are matched by their tensors alone.
    """

    path: Path
    header: Header
    mode: Mode
    starts: Sequence[int]
    signatures: Sequence[int]
    is_debug: bool = False
    is_loose: bool = False

    def names(self) -> Sequence[str]:
        """Return the names of the records, in the order of the run."""

    def find(self, key: str) -> int | None:
        """Return the index of the record called ``key``; None if there is none."""

    def record(self, index: int) -> Record:
        """Return the record at ``index``."""

    def tensor(self, value: Value) -> np.ndarray[Any, Any]:
        """Return the array of a tensor value.

        Raises:
            UnreadableTensor: The data is missing or damaged.
        """

    @cached_property
    def values(self) -> ValueColumns:
        """All values of the run as columns."""
        return create_columns(self.records())

    def __len__(self) -> int:
        return len(self.names())

    def records(self) -> Iterator[Record]:
        """Iterate over all records, in the order of the run."""
        return map(self.record, range(len(self)))

    @property
    def shown(self) -> Run:
        """The run with the original names and values: itself, or the run behind a view."""
        return self

    @property
    def construct(self) -> Construct:
        """The module that each call was made in, if it was recorded."""
        return Construct({})

    @property
    def stack_path(self) -> Path | None:
        """The path of the recorded call stacks; None if the format has no such file."""
        return None

    def use_stacks(self, path: Path) -> None:
        """Load the call stacks in ``path``, which ``stack_of`` then returns."""
        raise UserError(f"The format of {self.path} has no file of call stacks.", "Leave stack_path out.")

    def stack_of(self, key: str) -> tuple[str, ...] | None:
        """Return the recorded frames of ``key``, innermost first; None if there are none."""
        return None

    def close(self) -> None:
        """Close the files; arrays already returned stay readable."""
        return


class HeldRun(Run):
    """A run whose records are all in memory; a subclass adds ``tensor``."""

    def __init__(self, path: Path, header: Header, mode: Mode, records: Iterable[Record]) -> None:
        self.path, self.header, self.mode = path, header, mode
        self._records = list(records)
        self._names = [record.key for record in self._records]
        self._index = {key: index for index, key in enumerate(self._names)}
        self.starts, self.signatures = self.values.starts, self.values.signatures

    def names(self) -> Sequence[str]:
        """Return the names of the records, in the order of the run."""
        return self._names

    def find(self, key: str) -> int | None:
        """Return the index of the record called ``key``; None if there is none."""
        return self._index.get(key)

    def record(self, index: int) -> Record:
        """Return the record at ``index``."""
        return self._records[index]

"""Base class of runs under common names, which matchers see in place of a run; tables show the original run."""

from __future__ import annotations

import sys
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property

from probe_core.model import Record, Slot, Value
from probe_core.model.run import Construct, Run
from probe_matching.derived_run import DerivedRun

UNPAIRED_MARK = "~"
"""The beginning of the path of a value without a partner."""


def is_unpaired(slot: Slot) -> bool:
    """Return True for a value without a place that both runs have."""
    return slot.path.startswith(UNPAIRED_MARK)


class RenamedRun(DerivedRun):
    """A run under common names, with the same records and slot numbers as the original run.

    A subclass calls ``_set_names`` with all names, then ``_compute_signatures``, before the run is used.

    Args:
        run: The original run.
        side: ``target`` or ``golden``, which marks values without a partner.
    """

    def __init__(self, run: Run, side: str) -> None:
        super().__init__(run)
        self._side = side
        self.starts = run.starts

    @abstractmethod
    def record(self, index: int) -> Record:
        """Return the record at ``index`` under common names."""

    def _set_names(self, names: Iterable[str]) -> None:
        """Take the common names of all records, in the order of the run."""
        self._names = [sys.intern(name) for name in names]
        self._index = {name: index for index, name in enumerate(self._names)}

    def _compute_signatures(self) -> None:
        """Compute the signatures, once records can be translated."""
        self.signatures = array("q", map(_compute_signature, self.records()))

    def _place_slot(self, key: str, slot: Slot, path: str | None, value: Value | None = None) -> Slot:
        """Return a slot at its common path; None for one without a partner.

        Args:
            key: The common name of its record.
            slot: The slot of the run.
            path: The common path.
            value: The value to show matchers; None for that of the run.
        """
        place = f"{UNPAIRED_MARK}{self._side}.{slot.path}" if path is None else path
        name = f"{key}.{slot.side.value}.{place}" if place else f"{key}.{slot.side.value}"
        return Slot(name, slot.side, place, slot.value if value is None else value)

    @property
    def shown(self) -> Run:
        """The original run, whose names and values a person sees."""
        return self._run.shown

    def names(self) -> Sequence[str]:
        """Return the common names of the records, in the order of the run."""
        return self._names

    def find(self, key: str) -> int | None:
        """Return the index of the record with the common name ``key``."""
        return self._index.get(key)

    @cached_property
    def construct(self) -> Construct:
        """The module that each call was made in, under common names."""
        names = dict(zip(self._run.names(), self._names))
        return self._run.construct.rename_modules(lambda name: names.get(name, name))


def _compute_signature(record: Record) -> int:
    """Return a hash of the row names of a record."""
    return hash(tuple([slot.name for slot in record.slots]))

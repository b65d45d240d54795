"""Calls that one of two recorders does not capture are not compared (docs/pairing.md#families)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from probe_core.errors import format_count, format_list
from probe_core.model import Record
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.plugins.manager import Manager
from probe_core.store.names import get_scope
from probe_matching.derived_run import DerivedRun

MAX_LISTED_SCOPES = 5


class CapturedCallViewer:
    """A viewer that leaves out the calls that one of two recorders does not capture."""

    def check(self, plan: Plan) -> None:
        """Accept any plan."""

    def select(self, target: Run, golden: Run) -> tuple[Run, Run, tuple[str, ...]]:
        """Return both runs without these calls, and notes on them."""
        return exclude_uncaptured(target, golden)

    def views(self, plan: Plan, manager: Manager, target: Run, golden: Run) -> None:
        """Leave the names as they are."""


def exclude_uncaptured(target: Run, golden: Run) -> tuple[Run, Run, tuple[str, ...]]:
    """Return both runs without the calls that the other recorder cannot capture, and notes on these calls."""
    results = [_exclude_uncaptured(*sides) for sides in ((target, golden), (golden, target))]
    notes = [
        f"not compared: {note}, which the recorder of the {side_name} did not record"
        for (_, note), side_name in zip(results, ("golden", "target"))
        if note
    ]
    return results[0][0], results[1][0], tuple(notes)


def _exclude_uncaptured(run: Run, partner_run: Run) -> tuple[Run, str]:
    """Return ``run`` without the calls that the recorder of ``partner_run`` cannot capture, and what was left out.

    A recorder captures the families that its header lists, and the scopes of which it recorded a call, but
    not the operators that it saw and was configured to ignore.
    """
    missing = run.header.families.keys() - partner_run.header.families.keys()
    scopes = {scope for family in missing for scope in run.header.families[family]}
    if scopes:
        scopes -= {get_scope(name) for name in partner_run.names()}
    ignored = partner_run.header.unrecorded
    if not scopes and not ignored:
        return run, ""
    names = run.names()
    left_out = {
        place: get_scope(name)
        for place, name in enumerate(names)
        if get_scope(name) in scopes or name.rsplit(".", 2)[0] in ignored
    }
    if not left_out:
        return run, ""
    note = f"{format_count(len(left_out), 'call')} of {format_list(sorted(set(left_out.values())), MAX_LISTED_SCOPES)}"
    return PartialRun(run, [place for place in range(len(names)) if place not in left_out]), note


class PartialRun(DerivedRun):
    """A run with some of the records of another run, in the same order.

    Args:
        run: The other run, which is closed with this one.
        record_indices: The indices of the records of that run, in ascending order.
    """

    def __init__(self, run: Run, record_indices: Sequence[int]) -> None:
        super().__init__(run)
        self._record_indices = record_indices
        names = run.names()
        self._names = [names[place] for place in record_indices]
        self._index = {name: index for index, name in enumerate(self._names)}
        lengths = (run.starts[place + 1] - run.starts[place] for place in record_indices)
        self.starts = array("q", accumulate(lengths, initial=0))
        self.signatures = array("q", (run.signatures[place] for place in record_indices))

    def names(self) -> Sequence[str]:
        """Return the names of the records, in the order of the run."""
        return self._names

    def find(self, key: str) -> int | None:
        """Return the index of the record called ``key``; None if it is not in the run."""
        return self._index.get(key)

    def record(self, index: int) -> Record:
        """Return the record at ``index``."""
        return replace(self._run.record(self._record_indices[index]), index=index)

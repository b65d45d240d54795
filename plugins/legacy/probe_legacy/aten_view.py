"""Common names for a run with Aten operators beside a run without (docs/legacy.md#aten-operators)."""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from probe_core.model import Kind, Record, Side, Slot, Value
from probe_core.model.run import Construct, Run, signature
from probe_legacy.reading.aten import ATEN, operators_of, place_of

ALONE = "unpaired"
Chosen = Mapping[str, str]
"""The API operator of each Aten operator of a run."""


def in_common_names(target: Run, golden: Run, *, has_places: bool) -> tuple[Run, Run] | None:
    """Return both runs with their Aten operators under the names of those that call them, if one has any.

    Args:
        target: The run under test.
        golden: The reference run.
        has_places: True if gradients have the places of the inputs that they are of.
    """
    runs = target, golden
    aten = [{operator for family, operator in _operators(run) if family == ATEN} for run in runs]
    if bool(aten[0]) is bool(aten[1]):
        return None
    other = golden if aten[0] else target
    callers = {operator.lower() for _, operator in _operators(other)}
    chosen = {
        operator: caller
        for operator in aten[0] or aten[1]
        for caller in [next((name for name in operators_of(operator.lower()) if name in callers), None)]
        if caller is not None
    }
    if not chosen:
        return None
    views = [
        Common(run, side, chosen, has_places=has_places) for run, side in zip(runs, ("target", "golden"))
    ]
    return views[0], views[1]


def _operators(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the family and the operator of each call that is not of a module."""
    for name in run.names():
        if not name.startswith("Module."):
            family, _, rest = name.partition(".")
            yield family, rest.rsplit(".", 2)[0]


class Common(Run):
    """A view of a run in which the same operators have the same names, whatever level they were recorded at.

    Only tensors keep their places: other arguments differ between the levels.

    Args:
        run: The run to view.
        side: ``target`` or ``golden``, which marks values without a partner.
        chosen: The API operators by Aten operators.
        has_places: True if gradients have the places of the inputs that they are of; else they are in the
            order of the backward graph, which is that of the Aten operators for both levels.
    """

    path: Path

    def __init__(self, run: Run, side: str, chosen: Chosen, *, has_places: bool) -> None:
        self._run, self._side, self._chosen, self._has_places = run, side, chosen, has_places
        self.path, self.header, self.mode, self.is_debug = run.path, run.header, run.mode, run.is_debug
        self.starts = run.starts
        self._aten: dict[str, str] = {}
        self._names = list(self._renamed(set(chosen.values())))
        self._index = {name: index for index, name in enumerate(self._names)}
        self.signatures = array("q", [signature(record) for record in self.records()])

    def _renamed(self, callers: Set[str]) -> Iterator[str]:
        """Yield the common names of all calls; calls of one operator are counted in their order."""
        counts: Counter[str] = Counter()
        numbers: dict[str, str] = {}
        for phase in (".forward", ".backward"):
            for name in self._run.names():
                call = name.removesuffix(phase)
                if call == name or call in numbers or name.startswith("Module."):
                    continue
                family, _, rest = call.partition(".")
                operator = rest.rpartition(".")[0]
                caller = self._chosen.get(operator) if family == ATEN else operator.lower()
                if caller is None or caller not in callers:
                    continue
                numbers[call] = f"{ATEN}.{caller}.{counts[caller]}"
                counts[caller] += 1
                if family == ATEN:
                    self._aten[numbers[call]] = operator
        for name in self._run.names():
            call, _, phase = name.rpartition(".")
            yield sys.intern(f"{numbers[call]}.{phase}" if call in numbers else name)

    @property
    def shown(self) -> Run:
        """The original run, whose names and values a person sees."""
        return self._run.shown

    def names(self) -> Sequence[str]:
        """Return the common names of the calls, in the order of the run."""
        return self._names

    def find(self, key: str) -> int | None:
        """Return the index of the call with the common name ``key``."""
        return self._index.get(key)

    def tensor(self, value: Value) -> np.ndarray[Any, Any]:
        """Return the array of a tensor value of the run."""
        return self._run.tensor(value)

    def record(self, index: int) -> Record:
        """Return the call at ``index`` under its common name."""
        record, key = self._run.record(index), self._names[index]
        if key == record.key:
            return record
        call = key.rpartition(".")[0]
        return Record(
            index, key, tuple([self._slot(key, self._aten.get(call), slot) for slot in record.slots])
        )

    def _slot(self, key: str, aten: str | None, slot: Slot) -> Slot:
        path: str | None = slot.path
        is_forward = key.endswith(".forward")
        is_argument = slot.side is Side.INPUT if is_forward else slot.side is Side.OUTPUT and self._has_places
        if slot.value.kind is not Kind.TENSOR:
            path = None
        elif aten is not None and is_argument and not slot.path.startswith(ALONE):
            path = place_of(aten, key.split(".")[1], slot.path)
        place = f"{ALONE}.{self._side}.{slot.path}" if path is None else path
        return Slot(f"{key}.{slot.side.value}.{place}", slot.side, place, slot.value)

    @property
    def construct(self) -> Construct:
        """The module that each call was made in, under common names."""
        names = dict(zip(self._run.names(), self._names))
        return self._run.construct.renamed(lambda name: names.get(name, name))

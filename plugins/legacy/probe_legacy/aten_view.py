"""Common names for a run with Aten operators beside a run without (docs/legacy.md#aten-operators)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache

from probe_matching.api import RenamedRun, is_unpaired

from probe_core.files.packaged import load_yaml
from probe_core.model import Kind, Record, Side, Slot
from probe_core.model.run import Run
from probe_core.store.names import is_module

ATEN = "Aten"
"""The scope of Aten operators."""


@lru_cache(maxsize=4096)
def find_operators(aten: str) -> Sequence[str]:
    """Return the API operators that may call an Aten operator.

    Args:
        aten: The name of the Aten operator, with or without an overload such as ``.Tensor``.
    """
    name = aten.partition(".")[0]
    table = load_yaml("probe_legacy.reading", "aten.yaml")
    if (listed := table["operators"].get(name)) is not None:
        operators: list[str] = listed
        return operators
    stripped = _strip_affixes(name, table["parts"])
    return [name] if stripped == name else [name, *table["operators"].get(stripped, [stripped])]


def find_place(aten: str, operator: str, path: str) -> str | None:
    """Return the place of an argument in the API operator; None if the API operator has no such argument.

    Args:
        aten: The name of the Aten operator, with or without an overload.
        operator: The API operator.
        path: The place of the argument in the Aten operator, such as ``0`` or ``1.0``.
    """
    name = aten.partition(".")[0]
    places: dict[int, int] | None = load_yaml("probe_legacy.reading", "aten.yaml")["arguments"].get(name)
    if places is None or operator == name:
        return path
    first, _, rest = path.partition(".")
    if not first.isdigit() or int(first) not in places:
        return None
    return f"{places[int(first)]}.{rest}".rstrip(".")


def _strip_affixes(name: str, parts: dict[str, list[str]]) -> str:
    """Return a name without affixes that describe the implementation; names such as ``__and__`` are not changed."""
    if name.startswith("__"):
        return name
    is_changed = True
    while is_changed:
        is_changed = False
        for part in parts["before"]:
            if name.startswith(part) and len(name) > len(part):
                name, is_changed = name.removeprefix(part), True
        for part in parts["after"]:
            if name.endswith(part) and len(name) > len(part):
                name, is_changed = name.removesuffix(part), True
    return name


Chosen = Mapping[str, str]
"""The API operator of each Aten operator of a run."""


def create_common_views(target: Run, golden: Run, *, has_places: bool) -> tuple[Run, Run] | None:
    """Return both runs with their Aten operators under the names of those that call them, if one has any.

    Args:
        target: The run under test.
        golden: The reference run.
        has_places: True if gradients have the places of the inputs that they are of.
    """
    runs = target, golden
    aten = [{operator for family, operator in _iterate_operators(run) if family == ATEN} for run in runs]
    if bool(aten[0]) is bool(aten[1]):
        return None
    caller_run = golden if aten[0] else target
    callers = {operator.lower() for _, operator in _iterate_operators(caller_run)}
    chosen = {
        operator: caller
        for operator in aten[0] or aten[1]
        for caller in [next((name for name in find_operators(operator.lower()) if name in callers), None)]
        if caller is not None
    }
    if not chosen:
        return None
    views = [CommonNamesView(run, side, chosen, has_places=has_places) for run, side in zip(runs, ("target", "golden"))]
    return views[0], views[1]


def _iterate_operators(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the family and the operator of each call that is not of a module."""
    for name in run.names():
        if not is_module(name):
            family, _, rest = name.partition(".")
            yield family, rest.rsplit(".", 2)[0]


class CommonNamesView(RenamedRun):
    """A view of a run in which the same operators have the same names, whatever level they were recorded at.

    Only tensors keep their places: other arguments differ between the levels.

    Args:
        run: The run to view.
        side: ``target`` or ``golden``, which marks values without a partner.
        chosen: The API operators by Aten operators.
        has_places: True if gradients have the places of the inputs that they are of; else they are in the
            order of the backward graph, which is that of the Aten operators for both levels.
    """

    def __init__(self, run: Run, side: str, chosen: Chosen, *, has_places: bool) -> None:
        super().__init__(run, side)
        self._chosen, self._has_places = chosen, has_places
        self._aten: dict[str, str] = {}
        self._set_names(self._rename_calls(set(chosen.values())))
        self._compute_signatures()

    def _rename_calls(self, callers: Set[str]) -> Iterator[str]:
        """Yield the common names of all calls; calls of one operator are counted in their order."""
        counts: Counter[str] = Counter()
        numbers: dict[str, str] = {}
        for phase in (".forward", ".backward"):
            for name in self._run.names():
                call = name.removesuffix(phase)
                if call == name or call in numbers or is_module(name):
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
            yield f"{numbers[call]}.{phase}" if call in numbers else name

    def record(self, index: int) -> Record:
        """Return the call at ``index`` under its common name."""
        record, key = self._run.record(index), self._names[index]
        if key == record.key:
            return record
        call = key.rpartition(".")[0]
        return Record(index, key, tuple([self._rename_slot(key, self._aten.get(call), slot) for slot in record.slots]))

    def _rename_slot(self, key: str, aten: str | None, slot: Slot) -> Slot:
        path: str | None = slot.path
        is_forward = key.endswith(".forward")
        is_argument = slot.side is Side.INPUT if is_forward else slot.side is Side.OUTPUT and self._has_places
        if slot.value.kind is not Kind.TENSOR:
            path = None
        elif aten is not None and is_argument and not is_unpaired(slot):
            path = find_place(aten, key.split(".")[1], slot.path)
        return self._place_slot(key, slot, path)

"""A view of an older tool's dump for matching with a run of today (docs/legacy.md#compare-with-current-runs).

ptdbg_ascend up to 3.x and torch_npu.hooks also recorded the calls that a call makes inside, and numbered them
with all others; and they recorded gradients in the order of the backward graph. The view sets inner calls
aside, numbers the others again, and gives gradients the places of the inputs that they are of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from probe_matching.api import RenamedRun, find_owners, has_name_mappings

from probe_core.errors import format_count
from probe_core.matching.views import Views
from probe_core.model import Kind, Record, Side
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.plugins.manager import Manager
from probe_core.store.names import is_module
from probe_legacy.aten_view import create_common_views
from probe_legacy.reading.run import LegacyRun

INNER_CALL_MARK = "inner"
"""The word that an inner call has in place of its number."""
MAX_OUTER_DISTANCE = 8
"""Limit on the calls after an inner call among which the one around it is looked for."""
ATEN_NOTE = "Aten operators are compared with the operators that call them, by their tensors"


class OlderDump:
    """A view that is made if one of two runs is a dump of an older tool."""

    def check(self, plan: Plan) -> None:
        """Check nothing; no file of the plan is used."""

    def views(self, plan: Plan, manager: Manager, target: Run, golden: Run) -> Views | None:
        """Return both runs in common names; None for runs of one tool and level, or with a mapping file."""
        is_older = [isinstance(run, LegacyRun) for run in (target, golden)]
        if has_name_mappings(plan) or not any(is_older) or target.is_debug or golden.is_debug:
            return None
        if target.header.framework != golden.header.framework:
            return None
        if all(is_older):
            common = create_common_views(target, golden, has_places=False)
            return Views(*common, plan.matcher or "exact", (ATEN_NOTE,)) if common else None
        views = [OuterCallView(run, side) for run, side in ((target, "target"), (golden, "golden"))]
        views[0].settle(views[1])
        views[1].settle(views[0])
        older = views[is_older.index(True)]
        name = "target" if is_older[0] else "golden"
        notes = [f"the {name} was recorded by an older tool; its calls are numbered as today's recorders do"]
        if older.inner:
            notes.append(f"not compared: {format_count(older.inner, 'call')} that others made inside")
        if common := create_common_views(*views, has_places=True):
            return Views(*common, plan.matcher or "exact", (*notes, ATEN_NOTE))
        return Views(views[0], views[1], plan.matcher or "exact", tuple(notes))


class OuterCallView(RenamedRun):
    """A view of a run without inner calls, whose gradients have the places of inputs.

    Args:
        run: The run to view.
        side: ``target`` or ``golden``, which marks values without a partner.

    Attributes:
        inner: The number of forward calls that others made inside.
    """

    def __init__(self, run: Run, side: str) -> None:
        super().__init__(run, side)
        inner = _find_inner_calls(run) if isinstance(run, LegacyRun) else frozenset[str]()
        self.inner = len(inner)
        self._set_names(_number_calls(run.names(), inner, isinstance(run, LegacyRun)))
        self._is_ordered: dict[str, bool] = {}

    def settle(self, counterpart: OuterCallView) -> None:
        """Note the backward calls whose outputs have the same shapes in the same order in both runs."""
        for name in self._names:
            if name.endswith(".backward"):
                self._is_ordered[name] = self.list_outputs(name) == counterpart.list_outputs(name)
        self._compute_signatures()

    def list_outputs(self, key: str) -> list[tuple[str, str]]:
        """Return the paths and shapes of the tensors that a call returned, by its common name."""
        index = self.find(key)
        slots = self._run.record(index).slots if index is not None else ()
        return [
            (slot.path, slot.value.extent)
            for slot in slots
            if slot.side is Side.OUTPUT and slot.value.kind is Kind.TENSOR
        ]

    def record(self, index: int) -> Record:
        """Return the call at ``index`` under its common name."""
        record, key = self._run.record(index), self._names[index]
        slots = [self._place_slot(key, slot, path) for slot, path in zip(record.slots, self._list_paths(record, key))]
        return Record(index, key, tuple(slots))

    def _list_paths(self, record: Record, key: str) -> list[str | None]:
        """Return the common path of each value of a call; None for values without a partner."""
        paths: list[str | None] = [slot.path for slot in record.slots]
        if not record.key.endswith(".backward") or self._is_ordered.get(key):
            return paths
        index = self._run.find(f"{record.key.removesuffix('backward')}forward")
        if index is None:
            return paths
        owner_paths = iter(find_owners(record, self._run.record(index)))
        return [next(owner_paths) if slot.side is Side.OUTPUT else slot.path for slot in record.slots]


def _number_calls(names: Sequence[str], inner: frozenset[str], is_older: bool) -> list[str]:
    """Return the names of all calls; of an older dump, calls that are not inner are counted anew."""
    if not is_older:
        return list(names)
    counts: Counter[str] = Counter()
    numbers: dict[str, str] = {}
    for phase in (".forward", ".backward"):
        for name in names:
            call = name.removesuffix(phase)
            if call == name or is_module(name) or call in numbers:
                continue
            head, _, number = call.rpartition(".")
            if call in inner:
                numbers[call] = f"{head}.{INNER_CALL_MARK}{number}"
            else:
                numbers[call] = f"{head}.{counts[head]}"
                counts[head] += 1
    renamed: list[str] = []
    for name in names:
        call, _, phase = name.rpartition(".")
        renamed.append(f"{numbers[call]}.{phase}" if call in numbers else name)
    return renamed


def _find_inner_calls(run: Run) -> frozenset[str]:
    """Return the calls, without their phase, that the next calls made inside.

    The tools wrote an inner call before the one around it. It has the same operator name in another family,
    the same first input and the same outputs.
    """
    forward = [name for name in run.names() if name.endswith(".forward")]
    inner: set[str] = set()
    for place, name in enumerate(forward):
        for around in forward[place + 1 : place + 1 + MAX_OUTER_DISTANCE]:
            if _get_operator(around) == _get_operator(name) and around.partition(".")[0] != name.partition(".")[0]:
                content, outer_content = (_describe_call(run, call) for call in (name, around))
                if content and content == outer_content:
                    inner.add(name.removesuffix(".forward"))
                break
    return frozenset(inner)


def _get_operator(name: str) -> str:
    return name.split(".", 1)[1].rsplit(".", 2)[0]


def _describe_call(run: Run, name: str) -> list[tuple[Any, ...]]:
    """Return what is known of the first input and of the outputs of a call."""
    index = run.find(name)
    slots = run.record(index).slots if index is not None else ()
    inputs = [slot for slot in slots if slot.side is Side.INPUT and slot.value.kind is Kind.TENSOR][:1]
    outputs = [slot for slot in slots if slot.side is Side.OUTPUT]
    if not inputs or not outputs:
        return []
    compared_slots = [*inputs, *outputs]
    return [(slot.value.dtype, slot.value.extent, *map(repr, slot.value.statistics)) for slot in compared_slots]

"""The first value that is not finite, over all ranks of one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from probe_diagnosis import (
    Cause,
    Node,
    Searched,
    Timeline,
    frames_of,
    load_stacks,
    own_frame,
    search_timelines,
)

from probe_core.model import Kind, Side, Slot
from probe_core.model.columns import SCALAR, TENSOR
from probe_core.model.run import Run
from probe_watch.nan_analysis.levels import CallLevel, levels_of
from probe_watch.nan_analysis.marks import Mark, Marks, Source, mark_values, print_of
from probe_watch.nan_analysis.non_finite import NonFinite, find_non_finite


class Origin(str, Enum):
    """Ways in which a value that is not finite arose."""

    COMPUTED = "computed"
    """A call returned it, and received finite values only."""
    ARGUMENT = "argument"
    """A call returned it, and was called with an argument that is not finite."""
    INFINITY = "infinity"
    """A call made it of an infinity that is meant to be there, such as a mask that hides a whole row."""
    COMMUNICATION = "communication"
    """A communication call delivered it, and all ranks sent finite values."""
    UNRECORDED_RANK = "unrecorded_rank"
    """A communication call delivered it, and ranks without a record took part."""
    PARAMETER = "parameter"
    """It was in a parameter before any recorded call."""
    DATA = "data"
    """A call received it, and no recorded call returned it."""
    GRADIENT = "gradient"
    """A backward call received it, and no recorded call returned it."""
    PARAMETER_GRADIENT = "parameter_gradient"
    """It is in the gradient of a parameter, and no recorded call returned it."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a call that is not finite.

    Attributes:
        name: The name of its row.
        kinds: What it holds: ``nan``, ``inf``, ``-inf``.
        dtype: Its dtype.
        shape: The text of its shape.
        maximum: The recorded maximum.
        minimum: The recorded minimum.
    """

    name: str
    kinds: tuple[str, ...]
    dtype: str
    shape: str
    maximum: object
    minimum: object


@dataclass(frozen=True, slots=True)
class First:
    """A call with values that are not finite, which no earlier value explains.

    Attributes:
        rank: The rank.
        number: The index of the call in the run of the rank.
        op: The key of the call.
        origin: The way in which the values arose.
        value: The value that shows it.
        argument: The name of the row of the argument that is not finite; empty for none.
        absent: The ranks without a record that may have sent the value.
        infinity: The origin of the infinity that the call received; None for other origins.
        modules: The modules around the call, innermost first.
        where: The line of code; empty if not recorded.
        unknown: Number of inputs of the call that were recorded without statistics.
    """

    rank: int
    number: int
    op: str
    origin: Origin
    value: Value
    argument: str = ""
    absent: tuple[int, ...] = ()
    infinity: Source | None = None
    modules: tuple[str, ...] = ()
    where: str = ""
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """The first call of a rank with values that are not finite.

    Attributes:
        rank: The rank.
        op: The key of the call.
        senders: The ranks that sent the values, if the call is communication; empty for others.
        where: The line of code; empty if not recorded.
    """

    rank: int
    op: str
    senders: tuple[int, ...]
    where: str


@dataclass(frozen=True, slots=True)
class RankRecord:
    """Calls and values of one rank that are not finite.

    Attributes:
        run: The run of the rank.
        levels: The calls that have a level.
        marks: Number of values with each mark.
        unknown: Number of floating-point tensors without statistics.
        tensors: Number of tensors.
    """

    run: Run
    levels: tuple[CallLevel, ...]
    marks: Mapping[Mark, int]
    unknown: int
    tensors: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """Result of the search in one step.

    Attributes:
        step: The name of the step's directory; empty if not known.
        ranks: The ranks by number.
        first: The calls that no earlier value explains, earliest first.
        further: Later calls that return what is not finite although they received finite values only.
        path: The first call of each rank with harmful values, in the order in which they spread.
    """

    step: str
    ranks: Mapping[int, RankRecord]
    first: tuple[First, ...]
    further: tuple[First, ...]
    path: tuple[Arrival, ...]


def analyze_step(runs: Mapping[int, Run], step: str = "") -> Analysis:
    """Search all ranks of a step for the first value that is not finite.

    Args:
        runs: The opened runs by rank.
        step: The name of the step.
    """
    values = {rank: find_non_finite(run.values) for rank, run in runs.items()}
    marks = _marks(runs, values)
    ranks = {
        rank: RankRecord(
            run,
            tuple(levels_of(run.values, values[rank])),
            {mark: int((marks[rank].marks == mark).sum()) for mark in Mark if mark is not Mark.FINITE},
            int(values[rank].is_unknown.sum()),
            int((run.values.kind == TENSOR).sum()),
        )
        for rank, run in runs.items()
    }
    if not any(one.is_harmful.any() for one in marks.values()):
        return Analysis(step, ranks, (), (), ())
    for run in runs.values():
        load_stacks(run, run.stack_path)
    timelines = {
        rank: Timeline.of_run(run, rank, marks[rank].is_harmful, values[rank].is_unknown, step)
        for rank, run in runs.items()
    }
    searched = search_timelines(timelines.values())
    nodes = [*searched.first] or [*searched.grown[:1]]
    describe = _Describer(runs, values, marks)
    return Analysis(
        step,
        ranks,
        tuple(map(describe.first, nodes)),
        tuple(map(describe.first, searched.further)),
        tuple(_path(timelines, marks, searched, nodes, runs)),
    )


def _marks(runs: Mapping[int, Run], values: Mapping[int, NonFinite]) -> dict[int, Marks]:
    """Return the meanings of the values of all ranks."""
    orders = {
        rank: _order(run, rank, values[rank]) if values[rank].any.any() else [] for rank, run in runs.items()
    }
    marks = {rank: mark_values(run, rank, values[rank], orders[rank]) for rank, run in runs.items()}
    meant = {fingerprint for one in marks.values() for fingerprint in one.sources}
    if len(runs) > 1 and meant:
        for rank, run in runs.items():
            if marks[rank].is_harmful.any():
                marks[rank] = mark_values(run, rank, values[rank], orders[rank], meant)
    return marks


def _order(run: Run, rank: int, values: NonFinite) -> list[int]:
    """Return the numbers of the calls with values that are not finite, in the order of their effects."""
    timeline = Timeline.of_run(run, rank, values.any, values.is_unknown)
    keys, numbers = run.names(), sorted(set(run.values.record_of[values.any].tolist()))
    return sorted(numbers, key=lambda number: timeline.place(keys[number]))


def _path(
    timelines: Mapping[int, Timeline],
    marks: Mapping[int, Marks],
    searched: Searched,
    nodes: Sequence[Node],
    runs: Mapping[int, Run],
) -> list[Arrival]:
    """Return the first call of each rank with harmful values, each rank after those that sent them."""
    arrivals: dict[int, Arrival] = {}
    for rank, timeline in timelines.items():
        harmful = set(runs[rank].values.record_of[marks[rank].is_harmful].tolist())
        keys = runs[rank].names()
        op = min((keys[number] for number in harmful), key=timeline.place, default="")
        if op:
            senders = searched.senders.get((rank, op), ())
            arrivals[rank] = Arrival(rank, op, senders, own_frame(frames_of(runs[rank], op)))
    ordered: list[Arrival] = [arrivals.pop(node.rank) for node in nodes if node.rank in arrivals]
    reached = {arrival.rank for arrival in ordered}
    while arrivals:
        ready = [rank for rank, arrival in arrivals.items() if reached & {*arrival.senders}]
        ordered += [arrivals.pop(rank) for rank in ready or [next(iter(arrivals))]]
        reached = {arrival.rank for arrival in ordered}
    return ordered


@dataclass(frozen=True, slots=True)
class _Describer:
    """The runs and values that a description of a call needs."""

    runs: Mapping[int, Run]
    values: Mapping[int, NonFinite]
    marks: Mapping[int, Marks]

    def first(self, node: Node) -> First:
        """Return the description of a call that the search named."""
        run, rank, op = self.runs[node.rank], node.rank, node.facts.op
        number = run.find(op)
        assert number is not None
        lines = range(run.values.starts[number], run.values.starts[number + 1])
        places = {view.row: line for view, line in zip(node.facts.values, lines)}
        line = places[node.because.value.row]
        origin, infinity = self._origin(node, rank, lines, line)
        argument = next((row for row, one in places.items() if self._is_argument(rank, one)), "")
        return First(
            rank, number, op, origin, self._value(rank, line), argument if origin is Origin.ARGUMENT else "",
            node.because.absent, infinity, run.construct.ancestors(op), own_frame(frames_of(run, op)),
            sum(bool(self.values[rank].is_unknown[one]) for one in lines),
        )  # fmt: skip

    def _origin(self, node: Node, rank: int, lines: Iterable[int], line: int) -> tuple[Origin, Source | None]:
        """Return the way in which the value of a line arose, and the origin of an infinity behind it."""
        cause, key = node.because.cause, node.facts.op
        if cause is Cause.GRADIENT:
            return Origin.PARAMETER_GRADIENT, None
        if cause is Cause.DELIVERED:
            is_known = not (node.because.absent or node.because.is_alone)
            return Origin.COMMUNICATION if is_known else Origin.UNRECORDED_RANK, None
        slot = self._slot(rank, line)
        if slot.side.is_source:
            if slot.side is Side.PARAMETERS:
                return Origin.PARAMETER, None
            if "backward" in key.split("."):
                return Origin.GRADIENT, None
            return Origin.PARAMETER if slot.value.requires_grad else Origin.DATA, None
        sources = self.marks[rank].sources
        for one in lines:
            if self.marks[rank].marks[one] == Mark.GIVEN:
                given = self._slot(rank, one)
                if given.side.is_source and given.value.kind is Kind.TENSOR:
                    return Origin.INFINITY, sources.get(print_of(given))
        has_argument = any(self._is_argument(rank, one) for one in lines)
        return Origin.ARGUMENT if has_argument else Origin.COMPUTED, None

    def _is_argument(self, rank: int, line: int) -> bool:
        """Return True for an argument that is not finite."""
        values = self.runs[rank].values
        slot_side = values.places[values.place[line]][1]
        return bool(self.values[rank].kinds(line)) and slot_side.is_source and values.kind[line] == SCALAR

    def _slot(self, rank: int, line: int) -> Slot:
        return self.runs[rank].values.slots(np.array([line]))[0]

    def _value(self, rank: int, line: int) -> Value:
        slot = self._slot(rank, line)
        value = slot.value
        kinds = tuple(sorted(self.values[rank].kinds(line)))
        return Value(slot.name, kinds, value.dtype, value.extent, *value.statistics[:2])

"""The first non-finite value of a step, over all its ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from probe_diagnosis.api import Timeline, find_own_frame
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.difference.search import SearchResult, search_timelines
from probe_diagnosis.frames import find_frames, load_stacks

from probe_core.model import Kind, Side, Slot
from probe_core.model.columns import SCALAR, TENSOR
from probe_core.model.run import Run
from probe_core.store.names import is_backward
from probe_watch.nan_analysis.findings import (
    NonFiniteAnalysis,
    NonFiniteArrival,
    NonFiniteCall,
    NonFiniteOrigin,
    NonFiniteValue,
    RankRecord,
)
from probe_watch.nan_analysis.levels import find_levels
from probe_watch.nan_analysis.marks import InfinitySource, Marks, ValueMark, get_print, mark_values
from probe_watch.nan_analysis.non_finite import NonFinite, find_non_finite


def analyze_step(runs: Mapping[int, Run], step: str = "") -> NonFiniteAnalysis:
    """Search all ranks of a step for the first non-finite value.

    Args:
        runs: The opened runs by rank.
        step: The name of the step.
    """
    values = {rank: find_non_finite(run.values) for rank, run in runs.items()}
    marks = _mark_ranks(runs, values)
    ranks = {
        rank: RankRecord(
            run,
            tuple(find_levels(run.values, values[rank])),
            {mark: int((marks[rank].marks == mark).sum()) for mark in ValueMark if mark is not ValueMark.FINITE},
            int(values[rank].is_unknown.sum()),
            int((run.values.kind == TENSOR).sum()),
        )
        for rank, run in runs.items()
    }
    if not any(rank_marks.is_harmful.any() for rank_marks in marks.values()):
        return NonFiniteAnalysis(step, ranks, (), (), ())
    for run in runs.values():
        load_stacks(run, run.stack_path)
    timelines = {
        rank: Timeline.from_run(run, rank, marks[rank].is_harmful, values[rank].is_unknown, step)
        for rank, run in runs.items()
    }
    search_result = search_timelines(timelines.values())
    nodes = [*search_result.first] or [*search_result.grown[:1]]
    describer = _Describer(runs, values, marks)
    return NonFiniteAnalysis(
        step,
        ranks,
        tuple(map(describer.describe_call, nodes)),
        tuple(map(describer.describe_call, search_result.further)),
        tuple(_find_path(timelines, marks, search_result, nodes, runs)),
    )


def _mark_ranks(runs: Mapping[int, Run], values: Mapping[int, NonFinite]) -> dict[int, Marks]:
    """Return the mark of each value of all ranks.

    A value that one rank intends, such as an infinity in a mask, is intended on all ranks.
    """
    orders = {
        rank: _sort_calls(run, rank, values[rank]) if values[rank].any.any() else [] for rank, run in runs.items()
    }
    marks = {rank: mark_values(run, rank, values[rank], orders[rank]) for rank, run in runs.items()}
    intended = {fingerprint for rank_marks in marks.values() for fingerprint in rank_marks.sources}
    if len(runs) > 1 and intended:
        for rank, run in runs.items():
            if marks[rank].is_harmful.any():
                marks[rank] = mark_values(run, rank, values[rank], orders[rank], intended)
    return marks


def _sort_calls(run: Run, rank: int, values: NonFinite) -> list[int]:
    """Return the numbers of the calls with non-finite values, in the order of their effects."""
    timeline = Timeline.from_run(run, rank, values.any, values.is_unknown)
    keys, numbers = run.names(), sorted(set(run.values.record_of[values.any].tolist()))
    return sorted(numbers, key=lambda number: timeline.get_position(keys[number]))


def _find_path(
    timelines: Mapping[int, Timeline],
    marks: Mapping[int, Marks],
    search_result: SearchResult,
    nodes: Sequence[Node],
    runs: Mapping[int, Run],
) -> list[NonFiniteArrival]:
    """Return the first call with harmful values of each rank, senders before receivers."""
    arrivals: dict[int, NonFiniteArrival] = {}
    for rank, timeline in timelines.items():
        harmful = set(runs[rank].values.record_of[marks[rank].is_harmful].tolist())
        keys = runs[rank].names()
        op = min((keys[number] for number in harmful), key=timeline.get_position, default="")
        if op:
            senders = search_result.senders.get((rank, op), ())
            arrivals[rank] = NonFiniteArrival(rank, op, senders, find_own_frame(find_frames(runs[rank], op)))
    ordered: list[NonFiniteArrival] = [arrivals.pop(node.rank) for node in nodes if node.rank in arrivals]
    reached = {arrival.rank for arrival in ordered}
    while arrivals:
        ready = [rank for rank, arrival in arrivals.items() if reached & {*arrival.senders}]
        ordered += [arrivals.pop(rank) for rank in ready or [next(iter(arrivals))]]
        reached = {arrival.rank for arrival in ordered}
    return ordered


@dataclass(frozen=True, slots=True)
class _Describer:
    """Describes calls, from the runs, their non-finite values and the marks of these."""

    runs: Mapping[int, Run]
    values: Mapping[int, NonFinite]
    marks: Mapping[int, Marks]

    def describe_call(self, node: Node) -> NonFiniteCall:
        """Return the description of a call that the search returned."""
        run, rank, op = self.runs[node.rank], node.rank, node.call.op
        number = run.find(op)
        assert number is not None
        lines = range(run.values.starts[number], run.values.starts[number + 1])
        places = {view.row: line for view, line in zip(node.call.values, lines)}
        line = places[node.reason.value.row]
        origin, infinity = self._find_origin(node, rank, lines, line)
        argument = next((row for row, candidate in places.items() if self._is_argument(rank, candidate)), "")
        return NonFiniteCall(
            rank, number, op, origin, self._get_value(rank, line),
            argument if origin is NonFiniteOrigin.ARGUMENT else "",
            node.reason.absent_ranks, infinity, run.construct.ancestors(op), find_own_frame(find_frames(run, op)),
            sum(
                bool(self.values[rank].is_unknown[place]) and self._is_source(rank, place) for place in lines
            ),
        )  # fmt: skip

    def _find_origin(
        self, node: Node, rank: int, lines: Iterable[int], line: int
    ) -> tuple[NonFiniteOrigin, InfinitySource | None]:
        """Return the origin of the value in a line, and the source of the intended infinity if there is one."""
        cause, key = node.reason.cause, node.call.op
        if cause is CauseKind.GRADIENT:
            return NonFiniteOrigin.PARAMETER_GRADIENT, None
        if cause is CauseKind.DELIVERED:
            is_known = not (node.reason.absent_ranks or node.reason.is_only_rank)
            return NonFiniteOrigin.COMMUNICATION if is_known else NonFiniteOrigin.UNRECORDED_RANK, None
        slot = self._get_slot(rank, line)
        if slot.side.is_source:
            if slot.side is Side.PARAMETERS:
                return NonFiniteOrigin.PARAMETER, None
            if is_backward(key):
                return NonFiniteOrigin.GRADIENT, None
            return NonFiniteOrigin.PARAMETER if slot.value.requires_grad else NonFiniteOrigin.DATA, None
        sources = self.marks[rank].sources
        for candidate in lines:
            if self.marks[rank].marks[candidate] == ValueMark.GIVEN:
                intended_slot = self._get_slot(rank, candidate)
                if intended_slot.side.is_source and intended_slot.value.kind is Kind.TENSOR:
                    return NonFiniteOrigin.INFINITY, sources.get(get_print(intended_slot))
        has_argument = any(self._is_argument(rank, candidate) for candidate in lines)
        return NonFiniteOrigin.ARGUMENT if has_argument else NonFiniteOrigin.COMPUTED, None

    def _is_argument(self, rank: int, line: int) -> bool:
        """Return True for a scalar argument that is not finite."""
        is_scalar = self.runs[rank].values.kind[line] == SCALAR
        return bool(is_scalar and self.values[rank].list_kinds(line)) and self._is_source(rank, line)

    def _is_source(self, rank: int, line: int) -> bool:
        """Return True for a value that its call receives."""
        values = self.runs[rank].values
        return values.places[int(values.place[line])][1].is_source

    def _get_slot(self, rank: int, line: int) -> Slot:
        return self.runs[rank].values.slots(np.array([line]))[0]

    def _get_value(self, rank: int, line: int) -> NonFiniteValue:
        slot = self._get_slot(rank, line)
        value = slot.value
        kinds = tuple(sorted(self.values[rank].list_kinds(line)))
        return NonFiniteValue(slot.name, kinds, value.dtype, value.extent, *value.statistics[:2])

"""Data of charts over several ranks and steps: how far their calls differ, and which ranks communicate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

from probe_diagnosis.api import CallDepth

MAX_LINE_POINTS = 400
"""Maximum number of points of a line. In longer runs, each point represents several calls, by the worst of them."""
MAX_LINES = 128
"""Largest number of lines."""
MAX_RANKS = 64
"""Largest number of ranks whose exchanges are shown."""


@dataclass(slots=True)
class Exchange:
    """Counts of the calls of a collective, or of the calls by which one rank sends values to another.

    Attributes:
        sent: Number of calls on record at the sender, or of collective calls on record at each rank.
        received: Number of calls on record at the receiver.
        differing: Number of calls whose values differ.
        apis: The names of the APIs.
    """

    sent: int = 0
    received: int = 0
    differing: int = 0
    apis: dict[str, None] = field(default_factory=dict)

    def add(self, call: CallDepth, *, sends: bool) -> None:
        """Count a call."""
        self.sent += sends
        self.received += not sends
        self.differing += _is_different(call)
        self.apis[call.api] = None

    @property
    def count(self) -> int:
        """Number of calls; a record may lack those of one side."""
        return max(self.sent, self.received)

    @property
    def names(self) -> str:
        """The names of the APIs."""
        return ", ".join(self.apis)


class Exchanges(NamedTuple):
    """The values that ranks of one step sent to each other.

    Attributes:
        step: The directory of the step.
        ranks: The ranks.
        table: The exchanges by sender and receiver.
        groups: The collective calls: their names, the group as text, and the number of calls of each rank of the
            group. A call differs if it differs on any rank.
    """

    step: str
    ranks: Sequence[int]
    table: Mapping[tuple[int, int], Exchange]
    groups: Mapping[tuple[str, str], Exchange]


def find_worst_distance(calls: Sequence[CallDepth]) -> float:
    """Return the largest distance beyond rounding; 0 for none."""
    return max((call.distance for call in calls if _is_different(call) and call.distance is not None), default=0.0)


def draw_lines(ranks: Sequence[tuple[str, str, str, Sequence[CallDepth]]]) -> dict[str, Any]:
    """Return the lines of the chart as JSON data.

    Args:
        ranks: The step and the name of each rank, the link to its page, and its calls.

    Returns:
        ``ops``: keys of calls; ``lines``: for each its ``name``, its ``place`` among the steps and among the
        ranks, its ``link``, number of ``calls``, and
        ``points``: place, index of the key, distance (null if it has no size), and what rounding explains.
    """
    names: dict[str, int] = {}
    shown = []
    steps = list(dict.fromkeys(step for step, _, _, _ in ranks))
    rank_names = list(dict.fromkeys(rank for _, rank, _, _ in ranks))
    for step, rank, link, calls in ranks[:MAX_LINES]:
        size = max(1, math.ceil(len(calls) / MAX_LINE_POINTS))
        points = []
        for start in range(0, len(calls), size):
            judged = [
                (place, call)
                for place, call in enumerate(calls[start : start + size], start)
                if call.distance is not None
            ]
            if judged:
                place, call = max(judged, key=lambda item: (item[1].distance or 0.0, -item[0]))
                number = names.setdefault(call.op, len(names))
                distance = call.distance or 0.0
                points.append([place, number, _round_number(distance), _round_number(call.noise)])
        place_of = [steps.index(step), rank_names.index(rank)]
        shown.append(
            {"name": f"{step} {rank}".strip(), "place": place_of, "link": link, "calls": len(calls),
             "points": points}
        )  # fmt: skip
    return {"ops": list(names), "lines": shown, "left": max(0, len(ranks) - MAX_LINES)}


def find_exchanges(steps: Mapping[str, Mapping[int, Sequence[CallDepth]]], preferred_step: str) -> Exchanges | None:
    """Return the exchanges of ``preferred_step``, or of the first step that has exchanges; None if no step has any."""
    for step in sorted(steps, key=lambda step: step != preferred_step):
        step_exchanges = _collect_exchanges(step, steps[step])
        if step_exchanges.table or step_exchanges.groups:
            return step_exchanges
    return None


def _collect_exchanges(step: str, ranks: Mapping[int, Sequence[CallDepth]]) -> Exchanges:
    table: dict[tuple[int, int], Exchange] = {}
    collectives: dict[tuple[str, str], dict[int, list[CallDepth]]] = {}
    for rank, calls in ranks.items():
        for call in calls:
            if call.is_collective:
                group = ", ".join(map(str, call.group))
                collectives.setdefault((call.api, group), {}).setdefault(rank, []).append(call)
            for peer in call.sends:
                table.setdefault((rank, peer), Exchange()).add(call, sends=True)
            for peer in call.receives:
                table.setdefault((peer, rank), Exchange()).add(call, sends=False)
    ends = sorted({end for pair in table for end in pair})[:MAX_RANKS]
    shown_table = {pair: exchange for pair, exchange in sorted(table.items()) if set(pair) <= set(ends)}
    groups = {key: _merge_ranks(list(calls.values())) for key, calls in sorted(collectives.items())}
    return Exchanges(step, ends, shown_table, groups)


def _merge_ranks(ranks: Sequence[Sequence[CallDepth]]) -> Exchange:
    """Return the exchange of collective calls, which each rank makes in the same order."""
    calls = list(zip_longest(*ranks))
    differing = sum(any(call is not None and _is_different(call) for call in records) for records in calls)
    return Exchange(sent=len(calls), differing=differing, apis={ranks[0][0].api: None})


def _is_different(call: CallDepth) -> bool:
    return call.distance is not None and call.distance > call.noise


def _round_number(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None

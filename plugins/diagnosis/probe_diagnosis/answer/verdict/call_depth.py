"""The distance of each call of a rank, and the ranks that it exchanged values with, for pictures of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from probe_core.plugins.protocols import PairResult
from probe_diagnosis.answer.verdict.suspect_finder import SuspectFinder
from probe_diagnosis.collectives.calls import CommunicationCall, Flow
from probe_diagnosis.timeline.value_table import UNJUDGED_CODE


class CallDepth(NamedTuple):
    """The distance of a call of one rank, and its communication.

    Attributes:
        op: The key of the call.
        distance: The largest relative distance of the outputs; inf if the distance of an output has no size, as
            for different shapes; None if no output was judged.
        noise: The largest relative distance that rounding explains.
        api: The name of the communication API; empty for any other call.
        sends: The ranks that the call sends values to; empty for a call without a direction.
        receives: The ranks that the call receives values from.
        group: The ranks that take part in a collective call; empty for the default group.
        is_collective: True if all ranks of the group send to all.
    """

    op: str
    distance: float | None
    noise: float
    api: str = ""
    sends: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()
    group: tuple[int, ...] = ()
    is_collective: bool = False


def list_call_depths(finished: PairResult) -> list[CallDepth]:
    """Return the calls of a rank in the order of their effects; empty if another plugin provided the finder."""
    if not isinstance(finished.finder, SuspectFinder):
        return []
    calls, rank = finished.finder.facts.ops, finished.pair.rank
    lines = calls.table.lines
    is_judged = (lines["state"] != UNJUDGED_CODE) & ~calls.table.is_source
    with np.errstate(all="ignore"):
        relative = np.where(lines["distance"] == 0, 0.0, lines["distance"] / lines["scale"])
    is_known = calls.has_any(is_judged).tolist()
    distances = calls.find_largest(np.where(is_judged, relative, 0.0)).tolist()
    noises = calls.find_largest(np.where(is_judged, lines["noise"], 0.0)).tolist()
    return [
        _create_depth(
            calls.keys[number],
            distances[number] if is_known[number] else None,
            noises[number],
            calls.communication.get(number),
            rank,
        )
        for number in calls.effect_order
    ]


def _create_depth(
    op: str, distance: float | None, noise: float, call: CommunicationCall | None, rank: int
) -> CallDepth:
    if call is None or call.api.flow is Flow.NONE:
        return CallDepth(op, distance, noise)
    return CallDepth(
        op,
        distance,
        noise,
        call.api.name,
        sends=tuple(_iterate_peers(call, rank, is_sending=True)),
        receives=tuple(_iterate_peers(call, rank, is_sending=False)),
        group=call.group,
        is_collective=call.api.flow is Flow.ALL,
    )


def _iterate_peers(call: CommunicationCall, rank: int, *, is_sending: bool) -> Iterator[int]:
    """Yield the ranks to which a call sends values (``is_sending``) or from which it receives values."""
    yield from (peer.rank for peer in call.peers if peer.sends is is_sending)
    if call.root is None or call.api.flow not in (Flow.FROM_ROOT, Flow.TO_ROOT):
        return
    from_root = call.api.flow is Flow.FROM_ROOT
    if rank == call.root:
        if is_sending is from_root:
            yield from (member for member in call.group if member != rank)
    elif is_sending is not from_root:
        yield call.root

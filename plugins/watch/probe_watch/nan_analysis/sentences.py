"""Sentences on the first value that is not finite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from probe_diagnosis.collectives.calls import find_api

from probe_core.errors import format_count, format_list
from probe_watch.nan_analysis.findings import NonFiniteAnalysis, NonFiniteArrival, NonFiniteCall, NonFiniteOrigin
from probe_watch.nan_analysis.levels import CallLevelKind
from probe_watch.nan_analysis.marks import ValueMark

MAX_LISTED_RANKS = 8
"""Largest number of ranks of which a line is printed."""
MAX_LISTED_CALLS = 3
"""Largest number of later calls with finite inputs that are printed."""

_DELIVERED_ORIGINS = (NonFiniteOrigin.COMMUNICATION, NonFiniteOrigin.UNRECORDED_RANK)

NOTHING = "No value is harmfully nan or infinite"

_ENDINGS = {
    NonFiniteOrigin.COMPUTED: "returns {kinds}, from finite inputs",
    NonFiniteOrigin.COMMUNICATION: "delivers {kinds}, although all ranks sent finite values",
    NonFiniteOrigin.PARAMETER: "receives {kinds} in a parameter, which no recorded call changed",
    NonFiniteOrigin.DATA: "receives {kinds} in the input data: no recorded call returned it",
    NonFiniteOrigin.GRADIENT: "receives a gradient with {kinds} that no recorded call returned",
    NonFiniteOrigin.PARAMETER_GRADIENT: "holds {kinds}: the gradient of a parameter, and no recorded call returned it",
}


def format_verdict(first: NonFiniteCall, step: str) -> str:
    """Return the verdict: rank, step, call, origin, and line of code."""
    place = f"rank {first.rank}, {step}" if step else f"rank {first.rank}"
    where = f" ({first.where})" if first.where else " (line of code not recorded)"
    return f"{place}: {first.op} {_format_ending(first)}{where}"


def _format_ending(first: NonFiniteCall) -> str:
    kinds = " and ".join(first.value.kinds)
    if first.origin is NonFiniteOrigin.ARGUMENT:
        return f"returns {kinds}, and was called with an argument that is not finite ({first.argument})"
    if first.origin is NonFiniteOrigin.INFINITY and first.infinity is not None:
        source = first.infinity
        came = f"an argument of {source.op}" if source.is_argument else f"outside, first read by {source.op}"
        return f"returns {kinds}, from an infinity that came from {came}"
    if first.origin is NonFiniteOrigin.INFINITY:
        return f"returns {kinds}, from an infinity among its inputs"
    if first.origin is NonFiniteOrigin.UNRECORDED_RANK:
        ranks = f"rank {format_list(first.absent)}, which has no record" if first.absent else "ranks without a record"
        return f"delivers {kinds}, and may have received it from {ranks}"
    return _ENDINGS[first.origin].format(kinds=kinds)


def iterate_details(analysis: NonFiniteAnalysis) -> Iterator[str]:
    """Yield the lines after the verdict."""
    first = analysis.first[0]
    value = first.value
    yield f"value: {value.name}, {value.dtype} {value.shape}, max {value.maximum}, min {value.minimum}"
    if first.modules:
        yield f"module: {first.modules[0]}"
    if first.unknown:
        yield f"{format_count(first.unknown, 'input')} of this call were recorded without statistics"
    independent = [call for call in analysis.first[1:] if call.origin not in _DELIVERED_ORIGINS]
    ranks = {first.rank, *(call.rank for call in independent)}
    spread = [arrival for arrival in analysis.path if arrival.rank not in ranks]
    for arrival in spread[:MAX_LISTED_RANKS]:
        yield _step_of_path(arrival)
    if len(spread) > MAX_LISTED_RANKS:
        yield f"and {format_count(len(spread) - MAX_LISTED_RANKS, 'further rank')}"
    for call in independent[:MAX_LISTED_RANKS]:
        yield f"independently, {format_verdict(call, '')}"
    if len(independent) > MAX_LISTED_RANKS:
        yield f"and independently on {format_count(len(independent) - MAX_LISTED_RANKS, 'further rank')}"
    for call in analysis.further[:MAX_LISTED_CALLS]:
        yield f"also, {format_verdict(call, '')}"
    if len(analysis.further) > MAX_LISTED_CALLS:
        yield f"and {format_count(len(analysis.further) - MAX_LISTED_CALLS, 'further call')} with finite inputs"


def _step_of_path(arrival: NonFiniteArrival) -> str:
    where = f" ({arrival.where})" if arrival.where else ""
    if arrival.senders:
        name = "rank" if len(arrival.senders) == 1 else "ranks"
        return f"rank {arrival.rank} receives it from {name} {format_list(arrival.senders)} by {arrival.op}{where}"
    if find_api(arrival.op) is not None:
        return f"rank {arrival.rank} receives it by {arrival.op}{where}"
    return f"rank {arrival.rank} has its first such value in {arrival.op}{where}"


def iterate_coverage(analysis: NonFiniteAnalysis) -> Iterator[str]:
    """Yield lines on what was examined, and on what was not."""
    ranks = analysis.ranks.values()
    calls = sum(len(rank.run) for rank in ranks)
    counts = {
        level: sum(record_level.scene.level is level for rank in ranks for record_level in rank.levels)
        for level in CallLevelKind
    }
    levels = ", ".join(f"{count:,} {level.value}" for level, count in counts.items())
    yield f"{format_count(calls, 'call')} of {format_count(len(analysis.ranks), 'rank')}; levels: {levels}"
    for mark, description in (
        (ValueMark.GIVEN, "with intentional infinities: arguments, masks and values computed from them"),
        (ValueMark.ABSORBED, "not finite, and read only by calls that return finite numbers"),
        (ValueMark.OVERWRITTEN, "not finite in memory that is not initialized or is overwritten"),
    ):
        if count := sum(rank.marks[mark] for rank in ranks):
            yield f"{format_count(count, 'value')} {description}"


def iterate_gaps(analysis: NonFiniteAnalysis) -> Iterator[str]:
    """Yield warnings on what could not be examined."""
    unknown = sum(rank.unknown for rank in analysis.ranks.values())
    if unknown:
        tensors = sum(rank.tensors for rank in analysis.ranks.values())
        yield f"{unknown:,} of {format_count(tensors, 'tensor')} were recorded without statistics and not examined"
    for number, rank in analysis.ranks.items():
        if rank.run.header.unfinished:
            yield f"the record of rank {number} is unfinished: {rank.run.header.unfinished}"


def format_written_paths(paths: list[Path]) -> list[str]:
    """Return a line for each written file."""
    return [f"wrote {path}" for path in paths]

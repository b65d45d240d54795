"""Sentences on the first value that is not finite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from probe_diagnosis import api_of

from probe_core.errors import counted, some
from probe_watch.nan_analysis.findings import Analysis, Arrival, First, Origin
from probe_watch.nan_analysis.levels import Level
from probe_watch.nan_analysis.marks import Mark

MAX_RANKS = 8
"""Largest number of ranks of which a line is printed."""
MAX_FURTHER = 3
"""Largest number of later calls with finite inputs that are printed."""

_DELIVERED = (Origin.COMMUNICATION, Origin.UNRECORDED_RANK)

NOTHING = "No value is harmfully nan or infinite"

_ENDINGS = {
    Origin.COMPUTED: "returns {kinds}, from finite inputs",
    Origin.COMMUNICATION: "delivers {kinds}, although all ranks sent finite values",
    Origin.PARAMETER: "receives {kinds} in a parameter, which no recorded call changed",
    Origin.DATA: "receives {kinds} in the input data: no recorded call returned it",
    Origin.GRADIENT: "receives a gradient with {kinds} that no recorded call returned",
    Origin.PARAMETER_GRADIENT: "holds {kinds}: the gradient of a parameter, and no recorded call returned it",
}


def verdict(first: First, step: str) -> str:
    """Return the verdict: rank, step, call, origin, and line of code."""
    place = f"rank {first.rank}, {step}" if step else f"rank {first.rank}"
    where = f" ({first.where})" if first.where else " (line of code not recorded)"
    return f"{place}: {first.op} {_ending(first)}{where}"


def _ending(first: First) -> str:
    kinds = " and ".join(first.value.kinds)
    if first.origin is Origin.ARGUMENT:
        return f"returns {kinds}, and was called with an argument that is not finite ({first.argument})"
    if first.origin is Origin.INFINITY and first.infinity is not None:
        source = first.infinity
        came = f"an argument of {source.op}" if source.is_argument else f"outside, first read by {source.op}"
        return f"returns {kinds}, from an infinity that came from {came}"
    if first.origin is Origin.INFINITY:
        return f"returns {kinds}, from an infinity among its inputs"
    if first.origin is Origin.UNRECORDED_RANK:
        ranks = (
            f"rank {some(first.absent)}, which has no record" if first.absent else "ranks without a record"
        )
        return f"delivers {kinds}, and may have received it from {ranks}"
    return _ENDINGS[first.origin].format(kinds=kinds)


def details(analysis: Analysis) -> Iterator[str]:
    """Yield the lines after the verdict."""
    first = analysis.first[0]
    value = first.value
    yield f"value: {value.name}, {value.dtype} {value.shape}, max {value.maximum}, min {value.minimum}"
    if first.modules:
        yield f"module: {first.modules[0]}"
    if first.unknown:
        yield f"{counted(first.unknown, 'input')} of this call were recorded without statistics"
    independent = [other for other in analysis.first[1:] if other.origin not in _DELIVERED]
    ranks = {first.rank, *(other.rank for other in independent)}
    spread = [arrival for arrival in analysis.path if arrival.rank not in ranks]
    for arrival in spread[:MAX_RANKS]:
        yield _step_of_path(arrival)
    if len(spread) > MAX_RANKS:
        yield f"and {counted(len(spread) - MAX_RANKS, 'further rank')}"
    for other in independent[:MAX_RANKS]:
        yield f"independently, {verdict(other, '')}"
    if len(independent) > MAX_RANKS:
        yield f"and independently on {counted(len(independent) - MAX_RANKS, 'further rank')}"
    for other in analysis.further[:MAX_FURTHER]:
        yield f"also, {verdict(other, '')}"
    if len(analysis.further) > MAX_FURTHER:
        yield f"and {counted(len(analysis.further) - MAX_FURTHER, 'further call')} with finite inputs"


def _step_of_path(arrival: Arrival) -> str:
    where = f" ({arrival.where})" if arrival.where else ""
    if arrival.senders:
        name = "rank" if len(arrival.senders) == 1 else "ranks"
        return f"rank {arrival.rank} receives it from {name} {some(arrival.senders)} by {arrival.op}{where}"
    if api_of(arrival.op) is not None:
        return f"rank {arrival.rank} receives it by {arrival.op}{where}"
    return f"rank {arrival.rank} has its first such value in {arrival.op}{where}"


def coverage(analysis: Analysis) -> Iterator[str]:
    """Yield lines on what was examined, and on what was not."""
    ranks = analysis.ranks.values()
    calls = sum(len(rank.run) for rank in ranks)
    counts = {
        level: sum(one.scene.level is level for rank in ranks for one in rank.levels) for level in Level
    }
    levels = ", ".join(f"{count:,} {level.value}" for level, count in counts.items())
    yield f"{counted(calls, 'call')} of {counted(len(analysis.ranks), 'rank')}; levels: {levels}"
    for mark, words in (
        (Mark.GIVEN, "infinite on purpose: arguments, masks, and what calls make of them"),
        (Mark.ABSORBED, "not finite, and read only by calls that return finite numbers"),
        (Mark.OVERWRITTEN, "not finite in memory that is not initialised or is overwritten"),
    ):
        if count := sum(rank.marks[mark] for rank in ranks):
            yield f"{counted(count, 'value')} {words}"


def gaps(analysis: Analysis) -> Iterator[str]:
    """Yield warnings on what could not be examined."""
    unknown = sum(rank.unknown for rank in analysis.ranks.values())
    if unknown:
        tensors = sum(rank.tensors for rank in analysis.ranks.values())
        yield f"{unknown:,} of {counted(tensors, 'tensor')} were recorded without statistics and not examined"
    for number, rank in analysis.ranks.items():
        if rank.run.header.unfinished:
            yield f"the record of rank {number} is unfinished: {rank.run.header.unfinished}"


def wrote(paths: list[Path]) -> list[str]:
    """Return a line for each written file."""
    return [f"wrote {path}" for path in paths]

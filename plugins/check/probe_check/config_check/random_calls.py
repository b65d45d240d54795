"""Comparison of the calls of random functions, by their call stacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from probe_diagnosis import ConditionDifference, ConditionKind, place_in_order

from probe_check.config_check.items import Cell, ConfigDifference, Item, ItemResult, Level, worst
from probe_check.config_check.pack import Pack, RandomCalls
from probe_check.config_check.rules import Rules

COLUMNS = ("op", "rank", "bench_stack", "cmp_stack", "bench_count", "cmp_count", "check_result")
NO_MATCH = "no match stack"
MAX_CODE = 500
"""Largest number of characters of a line of code that is compared."""
_FRAME = re.compile(r"File (.+), line \d+, in ([^,]*), ?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame of a call stack."""

    file: str
    function: str
    code: str


@dataclass(frozen=True, slots=True)
class _Pair:
    """Calls of a random function from matching stacks; None for calls of one pack alone."""

    bench: RandomCalls | None
    cmp: RandomCalls | None

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of calls in BENCH and CMP."""
        return (self.bench.count if self.bench else 0, self.cmp.count if self.cmp else 0)

    @property
    def is_equal(self) -> bool:
        """True if both packs have the calls, equally often."""
        return self.bench is not None and self.cmp is not None and self.bench.count == self.cmp.count


def compare_random_calls(bench: Pack, cmp: Pack, rules: Rules) -> ItemResult:
    """Return the calls of random functions of both packs, paired by similar call stacks."""
    rows: list[tuple[Cell, ...]] = []
    differences: list[ConfigDifference] = []
    for rank in sorted({*bench.ranks_with_random_calls(), *cmp.ranks_with_random_calls()}):
        own, others = bench.random_calls(rank), cmp.random_calls(rank)
        for op in dict.fromkeys((*own, *others)):
            for pair in _pairs(own.get(op, []), others.get(op, []), rules.frame_similarity):
                stacks = ("\n".join(one.stack) if one else NO_MATCH for one in (pair.bench, pair.cmp))
                rows.append((op, rank, *stacks, *pair.counts, pair.is_equal))
                if not pair.is_equal:
                    differences.append(_difference(op, rank, pair))
    level = worst(one.level for one in differences)
    return ItemResult(Item.RANDOM, level, COLUMNS, tuple(rows), tuple(differences))


def _difference(op: str, rank: int, pair: _Pair) -> ConfigDifference:
    calls = pair.bench or pair.cmp
    frame = parse_frame(calls.stack[-1]) if calls and calls.stack else None
    place = f" (in {frame.function} of {frame.file})" if frame and frame.file else ""
    kind = ConditionKind.RANDOM_CALLS
    bench, cmp = pair.counts
    condition = ConditionDifference(kind, f"{op}{place}", cmp, bench)
    return ConfigDifference(Item.RANDOM, Level.ERROR, condition, place_in_order(kind.value, op), rank=rank)


def _pairs(bench: Sequence[RandomCalls], cmp: Sequence[RandomCalls], limit: float) -> Iterator[_Pair]:
    """Yield each call stack of BENCH with the first similar one of CMP, then those of CMP alone.

    Only stacks of equal files and functions can be similar, so they are looked up by these.
    """
    groups: dict[tuple[tuple[str, str], ...], list[tuple[RandomCalls, list[_Frame]]]] = {}
    for calls in cmp:
        frames = [parse_frame(frame) for frame in calls.stack]
        groups.setdefault(_outline(frames), []).append((calls, frames))
    is_matched = {id(calls): False for calls in cmp}
    for calls in bench:
        frames = [parse_frame(frame) for frame in calls.stack]
        matches = [other for other, own in groups.get(_outline(frames), ()) if _are_similar(own, frames, limit)]
        yield _Pair(calls, matches[0] if matches else None)
        is_matched.update((id(other), True) for other in matches)
    yield from (_Pair(None, calls) for calls in cmp if not is_matched[id(calls)])


def _outline(frames: Sequence[_Frame]) -> tuple[tuple[str, str], ...]:
    return tuple((frame.file, frame.function) for frame in frames)


def _are_similar(cmp: Sequence[_Frame], bench: Sequence[_Frame], limit: float) -> bool:
    """Return True if all frames of two stacks of equal files and functions are similar."""
    return all(
        ((own.file != "") + 1 + _code_similarity(own.code, other.code)) / 3 >= limit for own, other in zip(cmp, bench)
    )


@lru_cache(maxsize=65536)
def _code_similarity(own: str, other: str) -> float:
    return 1.0 if own == other else SequenceMatcher(None, own[:MAX_CODE], other[:MAX_CODE]).ratio()


@lru_cache(maxsize=65536)
def parse_frame(text: str) -> _Frame:
    """Return the file name, function and code of a frame; empty texts for what is no frame."""
    match = _FRAME.fullmatch(text)
    if match is None:
        return _Frame("", "", "")
    return _Frame(re.split(r"[/\\]", match[1])[-1], match[2], match[3])

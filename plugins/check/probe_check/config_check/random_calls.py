"""Comparison of the calls of random functions, by their call stacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from probe_diagnosis.conditions.differences import ConditionDifference, ConditionKind, place_in_order

from probe_check.config_check.items import Cell, ConfigDifference, DifferenceLevel, ItemResult, PackItem
from probe_check.config_check.pack import Pack, RandomCalls
from probe_check.config_check.rules import ConfigRules

RANDOM_COLUMNS = ("op", "rank", "bench_stack", "cmp_stack", "bench_count", "cmp_count", "check_result")
NO_MATCH = "no match stack"
MAX_CODE_LENGTH = 500
"""Largest number of characters of a line of code that is compared."""
_FRAME = re.compile(r"File (.+), line \d+, in ([^,]*), ?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame of a call stack."""

    file: str
    function: str
    code: str


@dataclass(frozen=True, slots=True)
class _RandomCallsPair:
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


def compare_random_calls(bench: Pack, cmp: Pack, rules: ConfigRules) -> ItemResult:
    """Return the calls of random functions of both packs, paired by similar call stacks."""
    rows: list[tuple[Cell, ...]] = []
    differences: list[ConfigDifference] = []
    for rank in sorted({*bench.list_random_ranks(), *cmp.list_random_ranks()}):
        bench_calls, cmp_calls = bench.read_random_calls(rank), cmp.read_random_calls(rank)
        for op in dict.fromkeys((*bench_calls, *cmp_calls)):
            for pair in _pair_stacks(bench_calls.get(op, []), cmp_calls.get(op, []), rules.frame_similarity):
                stacks = ("\n".join(item.stack) if item else NO_MATCH for item in (pair.bench, pair.cmp))
                rows.append((op, rank, *stacks, *pair.counts, pair.is_equal))
                if not pair.is_equal:
                    differences.append(_create_difference(op, rank, pair))
    return ItemResult(PackItem.RANDOM, RANDOM_COLUMNS, tuple(rows), tuple(differences))


def _create_difference(op: str, rank: int, pair: _RandomCallsPair) -> ConfigDifference:
    calls = pair.bench or pair.cmp
    frame = parse_frame(calls.stack[-1]) if calls and calls.stack else None
    place = f" (in {frame.function} of {frame.file})" if frame and frame.file else ""
    kind = ConditionKind.RANDOM_CALLS
    bench, cmp = pair.counts
    condition = ConditionDifference(kind, f"{op}{place}", cmp, bench)
    return ConfigDifference(
        PackItem.RANDOM, DifferenceLevel.ERROR, condition, place_in_order(kind.value, op), rank=rank
    )


def _pair_stacks(bench: Sequence[RandomCalls], cmp: Sequence[RandomCalls], limit: float) -> Iterator[_RandomCallsPair]:
    """Yield each call stack of BENCH with the first similar one of CMP, then those of CMP alone.

    Only stacks of equal files and functions can be similar, so they are looked up by these.
    """
    groups: dict[tuple[tuple[str, str], ...], list[tuple[RandomCalls, list[_Frame]]]] = {}
    for calls in cmp:
        frames = [parse_frame(frame) for frame in calls.stack]
        groups.setdefault(_get_outline(frames), []).append((calls, frames))
    is_matched = {id(calls): False for calls in cmp}
    for calls in bench:
        frames = [parse_frame(frame) for frame in calls.stack]
        matches = [
            candidate
            for candidate, candidate_frames in groups.get(_get_outline(frames), ())
            if _are_similar(candidate_frames, frames, limit)
        ]
        yield _RandomCallsPair(calls, matches[0] if matches else None)
        is_matched.update((id(candidate), True) for candidate in matches)
    yield from (_RandomCallsPair(None, calls) for calls in cmp if not is_matched[id(calls)])


def _get_outline(frames: Sequence[_Frame]) -> tuple[tuple[str, str], ...]:
    return tuple((frame.file, frame.function) for frame in frames)


def _are_similar(cmp: Sequence[_Frame], bench: Sequence[_Frame], limit: float) -> bool:
    """Return True if all frames of two stacks of equal files and functions are similar."""
    return all(
        ((cmp_frame.file != "") + 1 + _compare_code(cmp_frame.code, bench_frame.code)) / 3 >= limit
        for cmp_frame, bench_frame in zip(cmp, bench)
    )


@lru_cache(maxsize=65536)
def _compare_code(cmp_code: str, bench_code: str) -> float:
    return (
        1.0
        if cmp_code == bench_code
        else SequenceMatcher(None, cmp_code[:MAX_CODE_LENGTH], bench_code[:MAX_CODE_LENGTH]).ratio()
    )


@lru_cache(maxsize=65536)
def parse_frame(text: str) -> _Frame:
    """Return the file name, function and code of a frame; empty texts for what is no frame."""
    match = _FRAME.fullmatch(text)
    if match is None:
        return _Frame("", "", "")
    return _Frame(re.split(r"[/\\]", match[1])[-1], match[2], match[3])

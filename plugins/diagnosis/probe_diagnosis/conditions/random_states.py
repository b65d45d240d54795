"""Random states that differ between both runs: since when, and which calls drew from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from probe_diagnosis.conditions.file import RandomDraw, RunConditions

SAMPLE_POINTS = ("start", "forward", "end")


class Since(Enum):
    """Points at which the states of a generator begin to differ."""

    START = "start"
    FORWARD = "forward"
    DRAW = "draw"
    CALL = "call"
    END = "end"


@dataclass(frozen=True, slots=True)
class RandomDifference:
    """The states of a generator, which differ.

    Attributes:
        generator: The name of the generator.
        seeds: The seeds that the target and the golden set last; None for a seed that is not known.
        since: When the states begin to differ.
        op: The call before which they differ first, for ``Since.CALL``, or after which, for ``Since.DRAW``.
        after: The last call after which they were equal, for ``Since.CALL``; empty for none.
        only_in: The run that alone makes the call, for ``Since.DRAW``: ``target`` or ``golden``; empty if
            both make it.
    """

    generator: str
    seeds: tuple[int | None, int | None]
    since: Since
    op: str = ""
    after: str = ""
    only_in: str = ""

    @property
    def is_seed(self) -> bool:
        """True if both seeds are known and differ."""
        return None not in self.seeds and self.seeds[0] != self.seeds[1]


def find_random_differences(target: RunConditions, golden: RunConditions) -> Iterator[RandomDifference]:
    """Yield the generators whose states differ.

    States that no call and no other code of either run advanced in this step cannot have changed a number of
    it. They are left out, unless the seeds differ.
    """
    names = dict.fromkeys(name for sample in target.samples for name in sample.states)
    for name in names:
        difference = _find_difference(target, golden, name)
        if difference is not None and (difference.is_seed or _is_used(target, name) or _is_used(golden, name)):
            yield difference
    generators = dict.fromkeys(draw.generator for draw in target.draws if draw.generator not in names)
    for name in generators:
        difference = _find_first_draw(target, golden, name)
        if difference is not None:
            yield difference


def _find_difference(target: RunConditions, golden: RunConditions, name: str) -> RandomDifference | None:
    seeds = _find_seeds(target, golden, name)
    start, forward, end = (_differs(target, golden, name, point) for point in SAMPLE_POINTS)
    later = forward if forward is not None else end
    if start and later is not False and not any(_is_seeded_later(run, name) for run in (target, golden)):
        return RandomDifference(name, seeds, Since.START)
    draw_difference = _find_first_draw(target, golden, name)
    is_first_draw = draw_difference is None or (draw_difference.since is Since.CALL and not draw_difference.after)
    if forward and is_first_draw:
        return RandomDifference(name, seeds, Since.FORWARD)
    return draw_difference or (RandomDifference(name, seeds, Since.END) if end else None)


def _is_seeded_later(run: RunConditions, name: str) -> bool:
    """Return True if a generator was seeded after the start of the step.

    ``probe run`` records the start of its first step before the script runs.
    """
    seeds = [sample.seeds[name] for sample in run.samples if name in sample.seeds]
    return bool(seeds) and seeds[0] != seeds[-1]


def _differs(target: RunConditions, golden: RunConditions, name: str, point: str) -> bool | None:
    """Return True if the states at a point differ; None if they are not known."""
    states = [sample.states.get(name) if (sample := run.sample(point)) else None for run in (target, golden)]
    return None if None in states else states[0] != states[1]


def _find_seeds(target: RunConditions, golden: RunConditions, name: str) -> tuple[int | None, int | None]:
    """Return the random seeds at the last point where both runs recorded them."""
    for point in reversed(SAMPLE_POINTS):
        target_seed, golden_seed = (
            sample.seeds.get(name) if (sample := run.sample(point)) else None for run in (target, golden)
        )
        if target_seed is not None and golden_seed is not None:
            return target_seed, golden_seed
    return None, None


def _is_used(run: RunConditions, name: str) -> bool:
    """Return True if a run advanced a generator between two points of the step, or in a recorded call."""
    states = {sample.states[name] for sample in run.samples if name in sample.states}
    return len(states) > 1 or any(draw.generator == name for draw in run.draws)


def _find_first_draw(target: RunConditions, golden: RunConditions, name: str) -> RandomDifference | None:
    """Return the difference at the first pair of draws whose states differ."""
    seeds = _find_seeds(target, golden, name)
    draws = [[draw for draw in run.draws if draw.generator == name] for run in (target, golden)]
    calls = [{draw.op for draw in each} for each in draws]
    after = ""
    for target_draw, golden_draw in zip(*draws):
        if target_draw.before != golden_draw.before:
            return RandomDifference(name, seeds, Since.CALL, target_draw.op, after)
        if target_draw.op not in calls[1]:
            return RandomDifference(name, seeds, Since.DRAW, target_draw.op, only_in="target")
        if golden_draw.op not in calls[0]:
            return RandomDifference(name, seeds, Since.DRAW, golden_draw.op, only_in="golden")
        if target_draw.after != golden_draw.after:
            return RandomDifference(name, seeds, Since.DRAW, target_draw.op)
        after = target_draw.op
    return None


class DrawingCalls:
    """The calls of both runs that drew random numbers.

    Args:
        target: The conditions of the target.
        golden: The conditions of the golden.
    """

    def __init__(self, target: RunConditions, golden: RunConditions) -> None:
        self._both = [_group_by_op(run) for run in (target, golden)]

    def find_differing_generators(self, op: str, golden_op: str) -> tuple[str, str] | None:
        """Return the generators from which a call of the target and of the golden drew different numbers.

        Both are the same generator in different states, or the generators of two devices. None if the call drew from
        equal states, or in one run only.
        """
        target_draws, golden_draws = self._both[0].get(op, {}), self._both[1].get(golden_op, {})
        shared = [name for name in target_draws if name in golden_draws]
        if target_draws and golden_draws and not shared:
            return next(iter(target_draws)), next(iter(golden_draws))
        differing = (name for name in shared if target_draws[name].before != golden_draws[name].before)
        return next(((name, name) for name in differing), None)

    def iterate_ops(self) -> Iterator[str]:
        """Yield the calls of the target that drew, in the order of time."""
        yield from self._both[0]


def _group_by_op(run: RunConditions) -> dict[str, dict[str, RandomDraw]]:
    draws_by_op: dict[str, dict[str, RandomDraw]] = {}
    for draw in run.draws:
        draws_by_op.setdefault(draw.op, {}).setdefault(draw.generator, draw)
    return draws_by_op

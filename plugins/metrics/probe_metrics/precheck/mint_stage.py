"""The first stage of MindSpore's pre-check: the seed's rule, and what a standard says alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from probe_precheck import Array, Judged, Message, Output, Status

from probe_metrics.precheck.distribution import distributions_agree, zeros_agree
from probe_metrics.precheck.elements import Elements, Flat
from probe_metrics.precheck.first_stage import (
    FLOAT,
    INF_NAN_DIFFER,
    NO_BENCH,
    RANDOM,
    RANDOM_DIFFERS,
    TYPE_DIFFERS,
    class_of,
    judge_value,
    unlike,
)
from probe_metrics.precheck.solo import SoloVerdict
from probe_metrics.precheck.thresholds import first_stage, section
from probe_metrics.precheck.verdicts import passes


class MintStage:
    """Cosine and largest absolute error, as the peer's pre-check of ``mindspore.mint`` has them.

    A pass takes a cosine above its limit and a largest error below its own, whatever the dtype (guide). Inf
    and nan are to be alike, and are left out (A8, where the peer calls them wrong). Random numbers are
    compared by their distribution (probe). What the API's standard says alone is the second verdict.
    """

    def __init__(self) -> None:
        self._limits = section("mint_stage")
        self._solo = SoloVerdict()

    def judge(self, output: Output) -> Judged:
        """The status of one output."""
        problem = without_values(output)
        if problem is not None:
            return problem
        found = output.once(closeness)
        if found.apart:
            return Judged(Status.ERROR, messages=(INF_NAN_DIFFER,))
        missed = []
        if not found.cosine > self._limits["cosine"]:
            missed.append(_below(self._limits["cosine"]))
        if not found.max_abs_error < self._limits["max_abs_error"]:
            missed.append(_above(self._limits["max_abs_error"]))
        numbers = {
            "cosine": found.cosine,
            "max_abs_error": found.max_abs_error,
            "max_relative_error": found.max_relative_error,
        }
        return Judged(passes(not missed), numbers, tuple(missed))

    def judge_alone(
        self, output: Output, standard: str, numbers: Mapping[str, float | int], direction: str
    ) -> Judged:
        """What the standard can tell without a second machine."""
        problem = without_values(output)
        if problem is not None:
            return problem._replace(messages=problem.messages if problem.status is Status.ERROR else ())
        if class_of(output.bench) == FLOAT and output.once(closeness).apart:
            return Judged(Status.ERROR, messages=(INF_NAN_DIFFER,))
        return self._solo.judge(output, standard, numbers, direction)


def without_values(output: Output) -> Judged | None:
    """The verdict on what is not compared element by element; None where it is."""
    bench, device = output.bench, output.device
    if type(bench) is not type(device):
        return Judged(Status.ERROR, messages=(TYPE_DIFFERS,))
    if bench is None:
        return Judged(Status.SKIP, messages=(NO_BENCH,))
    if not isinstance(bench, Array):
        return judge_value(output)
    problem = unlike(bench, device, class_of(bench))
    if problem is not None or not output.is_random:
        return problem
    limits = first_stage()
    if limits["dropout"]["word"] in output.api:
        return Judged(passes(zeros_agree(bench, device, limits["dropout"])), messages=(RANDOM,))
    alike = distributions_agree(bench, device, limits["random"])
    return Judged(passes(alike), messages=(RANDOM if alike else RANDOM_DIFFERS,))


class Closeness(NamedTuple):
    """What the rule looks at; ``apart`` counts elements that are inf or nan and not alike."""

    cosine: float
    max_abs_error: float
    max_relative_error: float
    apart: int = 0


def closeness(output: Output) -> Closeness:
    """Cosine, largest absolute and largest relative error, in float64 (the peer's formulas).

    cosine = (s + a·b) / (s + |a||b|), relative error = |a - b| / |b|, where b = 0 takes s; s is 1e-8.
    """
    s = float(section("mint_stage")["smoothing"])
    dot = device = bench = largest = relative = 0.0
    apart = 0
    with np.errstate(all="ignore"):
        for ours, theirs, wrong in _blocks(output):
            apart += wrong
            if not ours.size:
                continue
            error = np.abs(ours - theirs)
            size = np.abs(theirs)
            dot += float(ours @ theirs)
            device += float(ours @ ours)
            bench += float(theirs @ theirs)
            largest = max(largest, float(error.max()))
            relative = max(relative, float((error / np.where(size == 0, s, size)).max()))
        if not math.isfinite(dot + device + bench):
            dot, device, bench = _small_products(output)
            s = 0.0  # beside such values it is nothing
        cosine = (s + dot) / (s + math.sqrt(device) * math.sqrt(bench))
    return Closeness(cosine, largest, relative, apart)


def _small_products(output: Output) -> tuple[float, float, float]:
    """a·b, a·a and b·b of values whose squares no float64 can hold, all values divided by 2 ** 600."""
    dot = device = bench = 0.0
    for ours, theirs, _ in _blocks(output):
        a, b = np.ldexp(ours, -600), np.ldexp(theirs, -600)
        dot += float(a @ b)
        device += float(a @ a)
        bench += float(b @ b)
    return dot, device, bench


def _blocks(output: Output) -> Iterator[tuple[Flat, Flat, int]]:
    """Both sides in float64, by blocks, without what is inf or nan, and how much of that is not alike."""
    if class_of(output.bench) == FLOAT:
        elements = output.once(Elements)
        for block in elements.blocks():
            found = elements.settled(block)
            yield found.device, found.bench, found.apart
    else:
        yield (
            output.device.values.reshape(-1).astype(np.float64),
            output.bench.values.reshape(-1).astype(np.float64),
            0,
        )


def _below(limit: float) -> Message:
    return Message(f"cosine similarity is less than threshold: {limit}")


def _above(limit: float) -> Message:
    return Message(f"max absolute difference is greater than threshold: {limit}")

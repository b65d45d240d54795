"""First stage of MindSpore's pre-check: the rule of msprobe's guide, and in addition the verdict of a standard."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from probe_precheck.api import (
    Message,
    Output,
    OutputVerdict,
    Status,
)

from probe_metrics.standards.distribution import have_similar_zeros
from probe_metrics.standards.elements import Elements, Flat
from probe_metrics.standards.first_stage import (
    FLOAT,
    INF_NAN_DIFFER,
    RANDOM,
    classify_dtype,
    judge_distribution,
    judge_structure,
)
from probe_metrics.standards.solo import SoloVerdict
from probe_metrics.standards.thresholds import load_first_stage, load_section
from probe_metrics.standards.verdicts import convert_to_status


class MintStage:
    """Status by cosine and largest absolute error, for calls of ``mindspore.mint``.

    An output passes if its cosine is above one limit and its largest absolute error, in the unit of the data,
    is below another, whatever the dtype. Formulas: see ``closeness``. The second verdict is what the standard
    of the API can say without a second machine (``solo.SoloVerdict``).

    Edge cases:
        * nan or inf, the same on both sides: left out; else an error. (msprobe fails every nan.)
        * A benchmark of zeros: the cosine is 1 if the device is zero too, near 0 if not; -0.0 counts as 0.0.
        * 0-d: like any other. No elements: SKIP.
        * Random numbers: compared by their distribution.

    Source: docs/standards.md#mint, by msprobe's guide for MindSpore; the second verdict is probe's own.
    """

    def __init__(self) -> None:
        self._limits = load_section("mint_stage")
        self._solo = SoloVerdict()

    def judge(self, output: Output) -> OutputVerdict:
        """Return the status of one output."""
        problem = judge_without_values(output)
        if problem is not None:
            return problem
        close = output.once(measure_closeness)
        if close.nonfinite_mismatches:
            return OutputVerdict(Status.ERROR, messages=(INF_NAN_DIFFER,))
        missed = []
        if not close.cosine > self._limits["cosine"]:
            missed.append(_create_cosine_message(self._limits["cosine"]))
        if not close.max_abs_error < self._limits["max_abs_error"]:
            missed.append(_create_error_message(self._limits["max_abs_error"]))
        numbers = {
            "cosine": close.cosine,
            "max_abs_error": close.max_abs_error,
            "max_relative_error": close.max_relative_error,
        }
        return OutputVerdict(convert_to_status(not missed), numbers, tuple(missed))

    def judge_alone(
        self, output: Output, standard: str, numbers: Mapping[str, float | int], direction: str
    ) -> OutputVerdict:
        """Return the verdict of the API's standard without a second machine."""
        problem = judge_without_values(output)
        if problem is not None:
            return problem._replace(messages=problem.messages if problem.status is Status.ERROR else ())
        if classify_dtype(output.bench) == FLOAT and output.once(measure_closeness).nonfinite_mismatches:
            return OutputVerdict(Status.ERROR, messages=(INF_NAN_DIFFER,))
        return self._solo.judge(output, standard, numbers, direction)


def judge_without_values(output: Output) -> OutputVerdict | None:
    """Return the verdict on an output that is not compared element by element; None for all other outputs."""
    problem = judge_structure(output)
    if problem is not None or not output.is_random:
        return problem
    bench, device, limits = output.bench, output.device, load_first_stage()
    if limits["dropout"]["word"] in output.api:
        return OutputVerdict(
            convert_to_status(have_similar_zeros(bench, device, limits["dropout"])), messages=(RANDOM,)
        )
    return judge_distribution(bench, device, limits["random"])


class Closeness(NamedTuple):
    """Numbers that the rule looks at; ``nonfinite_mismatches`` counts elements that are inf or nan on one side only."""

    cosine: float
    max_abs_error: float
    max_relative_error: float
    nonfinite_mismatches: int = 0


def measure_closeness(output: Output) -> Closeness:
    """Return cosine, largest absolute and largest relative error, in float64, by the formulas of msprobe.

    For a device a and a benchmark b, and s = 1e-8: ``cosine = (s + a·b) / (s + ‖a‖‖b‖)``, relative error of
    an element ``|a - b| / |b|``, with s in the place of a b that is 0.
    """
    s = float(load_section("mint_stage")["smoothing"])
    dot = device = bench = largest = relative = 0.0
    nonfinite_mismatches = 0
    with np.errstate(all="ignore"):
        for tested, reference, disagreeing in _iterate_blocks(output):
            nonfinite_mismatches += disagreeing
            if not tested.size:
                continue
            error = np.abs(tested - reference)
            size = np.abs(reference)
            dot += float(tested @ reference)
            device += float(tested @ tested)
            bench += float(reference @ reference)
            largest = max(largest, float(error.max()))
            relative = max(relative, float((error / np.where(size == 0, s, size)).max()))
        if not math.isfinite(dot + device + bench):
            dot, device, bench = _sum_scaled_products(output)
            s = 0.0  # negligible next to such values
        cosine = (s + dot) / (s + math.sqrt(device) * math.sqrt(bench))
    return Closeness(cosine, largest, relative, nonfinite_mismatches)


def _sum_scaled_products(output: Output) -> tuple[float, float, float]:
    """Return a·b, a·a and b·b of values whose squares leave float64's range, each divided by 2 ** 600."""
    dot = device = bench = 0.0
    for tested, reference, _ in _iterate_blocks(output):
        a, b = np.ldexp(tested, -600), np.ldexp(reference, -600)
        dot += float(a @ b)
        device += float(a @ a)
        bench += float(b @ b)
    return dot, device, bench


def _iterate_blocks(output: Output) -> Iterator[tuple[Flat, Flat, int]]:
    """Yield blocks of both sides as float64, without inf and nan, and the number of those that disagree."""
    if classify_dtype(output.bench) == FLOAT:
        elements = output.once(Elements)
        for block in elements.split_blocks():
            finite = elements.drop_special(block)
            yield finite.device, finite.bench, finite.nonfinite_mismatches
    else:
        yield (
            output.device.values.reshape(-1).astype(np.float64),
            output.bench.values.reshape(-1).astype(np.float64),
            0,
        )


def _create_cosine_message(limit: float) -> Message:
    return Message(f"cosine similarity is less than threshold: {limit}")


def _create_error_message(limit: float) -> Message:
    return Message(f"max absolute difference is greater than threshold: {limit}")

"""Errors of an output in multiples of the rounding of its dtype, and the outputs that are off by more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from probe_precheck import BEYOND_ROUNDING, Array, Message, Output

from probe_metrics.precheck.elements import Elements
from probe_metrics.precheck.thresholds import of_kind, section, thresholds

RELEASE = "guide"


class Rounding(NamedTuple):
    """Errors of an output, in eps of the dtype under test.

    Attributes:
        normwise: ``‖device - bench‖ / ‖bench‖``, in the Euclidean norm.
        mean: The mean of the relative errors; ``|bench|`` counts as at least a share of its root mean square.
        largest: The largest of the same relative errors.
    """

    normwise: float
    mean: float
    largest: float


def rounding(output: Output) -> Rounding:
    """Return the errors of an output in eps of its dtype; call it as ``output.once(rounding)`` to share them.

    Elements that are inf or nan are left out. Elements that are small by the benchmark ratio standard count
    as right up to its absolute bound. If the whole benchmark is zero, all three errors are inf, or 0 without
    any.
    """
    elements = output.once(Elements)
    domain = of_kind(thresholds(RELEASE, "benchmark_ratio")["small_domain"], elements.kind)
    eps, share = (of_kind(section("solo")[key], elements.kind) for key in ("eps", "least_share"))
    squares = errors = 0.0
    count = 0
    with np.errstate(all="ignore"):
        for block in elements.blocks():
            finite = elements.settled(block)
            squares += float(finite.bench @ finite.bench)
            count += finite.bench.size
        least = share * math.sqrt(squares / count) if count else 0.0
        relative = largest = 0.0
        for block in elements.blocks():
            finite = elements.settled(block)
            error = finite.error.copy()
            small = finite.magnitude <= domain["small_value"]
            error[small & (error <= domain["small_value_atol"])] = 0
            errors += float(error @ error)
            parts = error / np.maximum(finite.magnitude, least)
            parts[error == 0] = 0
            relative += float(np.add.reduce(parts))
            largest = max(largest, float(parts.max(initial=0.0)))
    if not errors:
        return Rounding(0.0, 0.0, 0.0)
    if not squares:
        return Rounding(math.inf, math.inf, math.inf)
    return Rounding(math.sqrt(errors / squares) / eps, relative / count / eps, largest / eps)


class BeyondRounding(Message):
    """Message of an output that passes by its absolute error alone, and that rounding does not explain."""


def beyond_rounding(output: Output) -> tuple[BeyondRounding, ...]:
    """Return a message if the error of a floating-point output is larger than rounding (``Rounding``).

    An output that moves more than it is rounded, where inputs move by a part of their rounding, may be off by
    as many times of that.
    """
    errors = output.once(rounding)
    limits = of_kind(section("solo")["rounding"], output.device.kind)
    if errors.normwise <= limits["normwise"] and errors.mean <= limits["mean"]:
        return ()
    moved = output.moved() if output.moved is not None else None
    if isinstance(moved, Array) and moved.values.shape == output.bench.values.shape:
        movement = rounding(Output(output.api, output.bench, Array(moved.values, output.device.dtype)))
        within = errors.normwise <= limits["normwise"] * max(1, movement.normwise)
        if within and errors.mean <= limits["mean"] * max(1, movement.mean):
            return ()
    return (BeyondRounding(*beyond_text(errors, limits)),)


def beyond_text(errors: Rounding, limits: Mapping[str, float]) -> tuple[str, str]:
    """Return the message on errors beyond the limits, in Chinese and in English."""
    numbers = (
        f"{errors.normwise:.3g}",
        f"{limits['normwise']:g}",
        f"{errors.mean:.3g}",
        f"{limits['mean']:g}",
    )
    chinese, english = (text.format(*numbers) for text in BEYOND_ROUNDING)
    return chinese, english

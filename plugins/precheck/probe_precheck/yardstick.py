"""Error of a result relative to its reference, as a multiple of what rounding explains.

The formulas are in docs/explain.md#yardstick, the limits in ``yardstick.yaml``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from probe_core.files.packaged import load_yaml
from probe_core.model.measure import BLOCK_ELEMENTS
from probe_precheck.model import (
    BEYOND_ROUNDING,
    FORWARD,
    FRAGILE_MESSAGE,
    Array,
    Call,
    Message,
    Output,
)
from probe_precheck.rebuild import list_descriptions

Flat = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class ErrorMeasurement:
    """Error of one result.

    Attributes:
        name: The name of the value in the record, such as ``output.0``; empty if it has no name.
        dtype: The dtype of the result.
        shape: Its shape.
        error: The root mean square of the errors. The error of an element is relative to the larger of the element
            and the scale.
        largest: The largest of these errors.
        rounding: The largest ``error`` that rounding explains.
        times: The error as a multiple of what rounding explains; rounding does not explain values above 1.
        nonfinite_mismatches: The number of elements that are nan or inf on only one side.
        is_fragile: True if rounding of the inputs explains the error, and rounding of the result does not. The call
            is correct, and its result is sensitive to rounding.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    error: float
    largest: float
    rounding: float
    times: float
    nonfinite_mismatches: int = 0
    is_fragile: bool = False

    @property
    def is_beyond(self) -> bool:
        """True if rounding does not explain the result."""
        return self.nonfinite_mismatches > 0 or not self.times <= 1


@cache
def load_limits() -> Mapping[str, Any]:
    """Return the contents of ``yardstick.yaml``."""
    loaded: dict[str, Any] = load_yaml(__package__, "yardstick.yaml")
    return loaded


def measure(output: Output, name: str = "") -> ErrorMeasurement:
    """Measure a floating-point result on the device against the reference, two arrays of one shape.

    The reference for moved inputs is computed only if rounding of the result does not explain the difference.

    Edge cases: nan on both sides, and inf of one sign on both sides (the reference rounded to the dtype), are
    ignored, and counted as ``nonfinite_mismatches`` if the sides disagree. No elements: no error. A reference of
    zeros: the scale is the smallest of the dtype. 0-d: like other shapes. A dtype without a unit, such as float8:
    no error.

    Args:
        output: The result (``device``) and its reference (``bench``).
        name: The name of the result.
    """
    if output.device.kind not in load_limits()["unit"]:
        return ErrorMeasurement(name, output.device.dtype, tuple(output.device.values.shape), 0.0, 0.0, math.inf, 0.0)
    measured = _measure(output, name, None)
    if not measured.is_beyond or output.moved is None:
        return measured
    moved = output.moved()
    if not isinstance(moved, Array) or moved.values.shape != output.bench.values.shape:
        return measured
    again = _measure(output, name, moved.values.reshape(-1))
    return replace(again, is_fragile=not again.is_beyond)


def create_rounding_message(measured: ErrorMeasurement) -> Message:
    """Return the message of an output on which the yardstick and the limits of the first stage disagree."""
    numbers = [f"{number:.3g}" for number in (measured.times, measured.error, measured.rounding)]
    message = BEYOND_ROUNDING if measured.is_beyond else FRAGILE_MESSAGE
    return Message(*(text.format(*numbers) for text in message))


def _measure(output: Output, name: str, moved: Flat | None) -> ErrorMeasurement:
    kind = output.device.kind
    recorded, reference = output.device.values.reshape(-1), output.bench.values.reshape(-1)
    units, limit = load_limits()["unit"], _find_limit(output)
    unit = math.hypot(units[kind], units.get(output.bench.kind, 0.0))
    scale = max(load_limits()["least"][kind], _estimate_scale(reference))
    ends = _find_ends(kind, limit * unit)
    error, movement = _ErrorSum(scale), _ErrorSum(scale)
    nonfinite_mismatches = 0
    with np.errstate(all="ignore"):
        for start in range(0, recorded.size, BLOCK_ELEMENTS):
            part = slice(start, start + BLOCK_ELEMENTS)
            recorded_part, reference_part = recorded[part], reference[part]
            moved_part = None if moved is None else moved[part]
            if error.add(recorded_part, reference_part) and (
                moved_part is None or movement.add(moved_part, reference_part)
            ):
                continue
            is_finite = np.isfinite(recorded_part) & np.isfinite(reference_part)  # the block contains nan or inf
            nonfinite_mismatches += _count_disagreeing(recorded_part[~is_finite], reference_part[~is_finite], *ends)
            if moved_part is not None:
                is_finite &= np.isfinite(moved_part)
                movement.add(moved_part[is_finite], reference_part[is_finite])
            error.add(recorded_part[is_finite], reference_part[is_finite])
    rounding = math.hypot(unit, movement.root)
    single = max(load_limits()["largest"] * rounding, math.hypot(unit, movement.largest))
    times = max(error.root / rounding, error.largest / single) / limit
    shape = tuple(output.device.values.shape)
    return ErrorMeasurement(
        name, output.device.dtype, shape, error.root, error.largest, limit * rounding, times, nonfinite_mismatches
    )


def estimate_summands(call: Call, size: int) -> float:
    """Return the largest number of elements that are summed for one of the ``size`` results of a call.

    A reduction of n elements to m sums n / m; a product of matrices of a and b elements to m sums √(a b / m).
    """
    fields = (call.forward.get("input_args"), call.forward.get("input_kwargs"), call.forward.get("input"))
    leaves = list_descriptions([*fields, (call.backward or {}).get("input")])
    shapes = [leaf.get("shape") for leaf in leaves if isinstance(leaf, Mapping)]
    sizes = sorted((math.prod(shape) for shape in shapes if isinstance(shape, list)), reverse=True)
    first, second = [*sizes, 1, 1][:2]
    size = max(1, size)
    return max(1.0, first / size, math.sqrt(first * second / size))


def _find_limit(output: Output) -> float:
    """Return the largest error that a result may have, as a multiple of the yardstick."""
    kind, api, direction = output.device.kind, output.api, output.direction
    by_direction, own_sums = load_limits()["limit"], load_limits()["own_sums"]
    limit = float(by_direction[FORWARD if api in load_limits()["products"] else direction][kind])
    growth = own_sums["per_root_of_length"] if api in own_sums[direction] else 0.0
    limit = max(limit, float(max(growth, load_limits()["per_root_of_length"][kind])) * math.sqrt(output.summands))
    return limit * float(load_limits()["unmoved"]) if output.moved is None else limit


class _ErrorSum:
    """Sum of the squares of relative errors, their number and the largest.

    Args:
        scale: The smallest magnitude to which an error is relative.
    """

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._squares = 0.0
        self._count = 0
        self.largest = 0.0

    def add(self, recorded: Flat, reference: Flat) -> bool:
        """Add the errors of a block; return False, and add nothing, if it contains nan or inf."""
        errors = np.subtract(recorded, reference, dtype=np.float64)
        np.abs(errors, out=errors)
        weight = np.abs(reference, dtype=np.float64)
        errors /= np.maximum(weight, self._scale, out=weight)
        squares = float(errors @ errors)
        if not math.isfinite(squares):
            return False
        self._squares += squares
        self._count += int(np.count_nonzero(reference != 0))  # several times faster than counting the numbers
        self.largest = max(self.largest, float(errors.max(initial=0.0)))
        return True

    @property
    def root(self) -> float:
        """Root mean square of the errors of all elements whose reference is not zero."""
        return math.sqrt(self._squares / max(1, self._count))


def _estimate_scale(reference: Flat) -> float:
    """Return the root mean square of a sample of the elements that are not zero.

    Masks, such as sums with -1e9, are ignored: large magnitudes that are far above all other magnitudes.
    """
    step = max(1, reference.size // load_limits()["sample"])
    for stride in (step, 1):
        sample = np.abs(reference[::stride].astype(np.float64))
        sample = sample[np.isfinite(sample) & (sample > 0)]
        if sample.size:
            largest = float(sample.max())
            mask = load_limits()["mask"]
            rest = sample[sample < largest / mask["near"]]
            if largest >= mask["least"] and rest.size and float(rest.max()) < largest / mask["far"]:
                sample, largest = rest, float(rest.max())
            with np.errstate(under="ignore"):  # divided by the largest, so that no square overflows
                return largest * math.sqrt(float(np.mean(np.square(sample / largest))))
    return 0.0


def _find_ends(kind: str, allowed: float) -> tuple[float, float]:
    """Return the largest finite number of a dtype, and the smallest magnitude that may round to inf."""
    top = (2 - 2.0**-7) * 2.0**127 if kind == "bfloat16" else float(np.finfo(kind).max)
    return top, top * (1 - min(allowed, 0.5))


def _count_disagreeing(recorded: Flat, reference: Flat, top: float, near: float) -> int:
    """Return the number of elements that are inf or nan on one side, or different on the two sides."""
    agree = np.isnan(recorded) & np.isnan(reference)
    over = (np.abs(reference) >= near) & (np.sign(recorded) == np.sign(reference))
    agree |= np.isinf(recorded) & over
    agree |= np.isinf(reference) & (np.abs(recorded) >= near) & over & (np.abs(recorded) <= top)
    return int(np.count_nonzero(~agree))

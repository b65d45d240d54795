"""Measurement of a recorded result against its reference, in multiples of what rounding explains.

The formulas are in docs/explain.md#yardstick, the limits in ``limits.yaml``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from probe_precheck import Recomputed

from probe_core.files.packaged import load_yaml
from probe_core.model.measure import BLOCK

Flat = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """Error of one recorded result.

    Attributes:
        name: The place in the record, such as ``output.0``.
        dtype: The dtype of the result.
        shape: Its shape.
        error: The root mean square of the errors, each relative to its element, or to the
            scale if that is larger.
        largest: The largest of these errors.
        rounding: The most that rounding explains of ``error``.
        times: The error in multiples of what rounding explains; above 1 it does not.
        apart: The number of elements that are nan or inf on one side alone.
        is_fragile: True if rounding of the result alone does not explain it, and that of what it was computed
            from does: the call is right, and its result moves with every rounding.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    error: float
    largest: float
    rounding: float
    times: float
    apart: int = 0
    is_fragile: bool = False

    @property
    def is_beyond(self) -> bool:
        """True if rounding does not explain the result."""
        return self.apart > 0 or not self.times <= 1


@cache
def limits() -> Mapping[str, Any]:
    """Return the contents of ``limits.yaml``."""
    loaded: dict[str, Any] = load_yaml(__package__, "limits.yaml")
    return loaded


def measure(
    result: Recomputed, api: str, direction: str, length: float, moved: Flat | None = None
) -> Measured:
    """Measure a result.

    Edge cases: nan on both sides, and inf of one sign on both sides (the reference rounded to the dtype), are
    left out, and counted as ``apart`` if the sides disagree. No elements: no error. A reference of zeros: the
    scale is the least of the dtype. 0-d: like any other.

    Args:
        result: The result and its reference.
        api: The bare name of the API.
        direction: ``forward`` or ``backward``.
        length: The number of elements that were summed for each element of the result, at most.
        moved: The reference computed from moved inputs; None if its own rounding is all that it is allowed.
    """
    recorded = result.recorded.values.reshape(-1)
    reference = result.reference.reshape(-1)
    kind = result.recorded.kind
    unit, least = limits()["unit"][kind], limits()["least"][kind]
    limit = _limit(kind, api, direction, length)
    scale = max(least, _scale(reference))
    ends = _ends(kind, limit * unit)
    error, movement = _Sum(scale), _Sum(scale)
    apart = 0
    with np.errstate(all="ignore"):
        for start in range(0, recorded.size, BLOCK):
            part = slice(start, start + BLOCK)
            own, true = recorded[part], reference[part]
            other = None if moved is None else moved.reshape(-1)[part]
            if error.add(own, true) and (other is None or movement.add(other, true)):
                continue
            both = np.isfinite(own) & np.isfinite(true)  # there is nan or inf
            apart += _disagreeing(own[~both], true[~both], *ends)
            if other is not None:
                both &= np.isfinite(other)
                movement.add(other[both], true[both])
            error.add(own[both], true[both])
    rounding = math.hypot(unit, movement.root)
    single = max(limits()["largest"] * rounding, math.hypot(unit, movement.largest))
    times = max(error.root / rounding, error.largest / single) / limit
    return Measured(
        result.name,
        result.recorded.dtype,
        tuple(result.recorded.values.shape),
        error.root,
        error.largest,
        limit * rounding,
        times,
        apart,
    )


def _limit(kind: str, api: str, direction: str, length: float) -> float:
    """Return the multiples of the yardstick that a result may be off by."""
    by_direction, own = limits()["limit"], limits()["own_sums"]
    limit = float(by_direction["forward" if api in limits()["products"] else direction][kind])
    growth = own["per_root_of_length"] if api in own[direction] else 0.0
    return max(limit, float(max(growth, limits()["per_root_of_length"][kind])) * math.sqrt(length))


class _Sum:
    """Sum of the squares of relative errors, their number and the largest.

    Args:
        scale: The least that an element counts as.
    """

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._squares = 0.0
        self._count = 0
        self.largest = 0.0

    def add(self, own: Flat, true: Flat) -> bool:
        """Add the errors of a block; return False, and add nothing, if it holds nan or inf."""
        errors = np.subtract(own, true, dtype=np.float64)
        np.abs(errors, out=errors)
        weight = np.abs(true, dtype=np.float64)
        errors /= np.maximum(weight, self._scale, out=weight)
        squares = float(errors @ errors)
        if not math.isfinite(squares):
            return False
        self._squares += squares
        self._count += int(np.count_nonzero(true != 0))  # several times as fast as of the numbers
        self.largest = max(self.largest, float(errors.max(initial=0.0)))
        return True

    @property
    def root(self) -> float:
        """Root mean square of the errors of all elements whose reference is not zero."""
        return math.sqrt(self._squares / max(1, self._count))


def _scale(reference: Flat) -> float:
    """Return the root mean square of a sample of the elements that are not zero.

    Masks, such as sums with -1e9, are left out: large magnitudes far above all that is not near them.
    """
    step = max(1, reference.size // limits()["sample"])
    for every in (step, 1):
        sample = np.abs(reference[::every].astype(np.float64))
        sample = sample[np.isfinite(sample) & (sample > 0)]
        if sample.size:
            largest = float(sample.max())
            mask = limits()["mask"]
            rest = sample[sample < largest / mask["near"]]
            if largest >= mask["least"] and rest.size and float(rest.max()) < largest / mask["far"]:
                sample, largest = rest, float(rest.max())
            # divided by the largest, so that no square overflows
            return largest * math.sqrt(float(np.mean(np.square(sample / largest))))
    return 0.0


def _ends(kind: str, allowed: float) -> tuple[float, float]:
    """Return the largest finite number of a dtype, and the least magnitude that may round to inf."""
    top = 65504.0 if kind == "float16" else (2 - 2.0 ** -(7 if kind == "bfloat16" else 23)) * 2.0**127
    return top, top * (1 - min(allowed, 0.5))


def _disagreeing(own: Flat, true: Flat, top: float, near: float) -> int:
    """Return the number of elements that are inf or nan on one side, or not the same on both."""
    alike = np.isnan(own) & np.isnan(true)
    over = (np.abs(true) >= near) & (np.sign(own) == np.sign(true))
    alike |= np.isinf(own) & over
    alike |= np.isinf(true) & (np.abs(own) >= near) & over & (np.abs(own) <= top)
    return int(np.count_nonzero(~alike))

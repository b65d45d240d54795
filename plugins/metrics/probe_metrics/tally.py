"""What one pass over a pair of tensors finds, whichever engine made it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

Totals = tuple[float, float, float, float, float, float, float, float]
"""The eight sums of a tally, in their order."""

NO_TOTALS: Totals = (0.0,) * 8
SUMS = 8
"""How many of a tally's last fields are sums over elements; they go on from piece to piece."""


class Tally(NamedTuple):
    """Counts, extrema and sums over both tensors; every error and every sum in float64.

    What is nan or infinite at the same place on both sides, with the same sign, counts as equal and
    as zero (decision D11); ``apart`` counts the places where one side is and the other is not so.
    Extrema are those of a side's finite elements; all sums, and what is said of errors, are those of
    the places where both sides are finite, with 0 for the others. The relative error is |N-B|/|B|: 0
    where N == B, infinite where only B is 0. Of complex data, errors and extrema are moduli, and
    the sums of a side those of the real parts.
    """

    size: int
    equal: bool  # bit for bit, and of one dtype
    target_max: float
    target_min: float
    golden_max: float
    golden_min: float
    target_nan: int
    target_infinite: int
    golden_nan: int
    golden_infinite: int
    apart: int
    max_absolute: float
    max_relative: float
    max_ulp: float
    below_one: int  # relative errors below 1/1000
    below_five: int  # and below 5/1000
    over_limit: int  # distances over the limit in units of the last place
    relative: float
    target_squares: float
    golden_squares: float
    squares: float  # of the differences
    dot: float
    target: float
    golden: float
    ulp: float

    @property
    def totals(self) -> Totals:
        """The sums, for the piece behind this one."""
        return self[-SUMS:]  # type: ignore[return-value]  # a slice of known length

    @property
    def finite(self) -> int:
        """How many places are finite on both sides, where nan and inf stand at the same places of both."""
        return self.size - self.target_nan - self.target_infinite

    def then(self, other: Tally) -> Tally:
        """This tally and that of the elements behind, which went on from ``totals``."""
        return Tally(
            self.size + other.size,
            self.equal and other.equal,
            max(self.target_max, other.target_max),
            min(self.target_min, other.target_min),
            max(self.golden_max, other.golden_max),
            min(self.golden_min, other.golden_min),
            self.target_nan + other.target_nan,
            self.target_infinite + other.target_infinite,
            self.golden_nan + other.golden_nan,
            self.golden_infinite + other.golden_infinite,
            self.apart + other.apart,
            max(self.max_absolute, other.max_absolute),
            max(self.max_relative, other.max_relative),
            max(self.max_ulp, other.max_ulp),
            self.below_one + other.below_one,
            self.below_five + other.below_five,
            self.over_limit + other.over_limit,
            *other.totals,
        )


class Units(NamedTuple):
    """What distances in units of the last place are counted in."""

    dtype: np.dtype[Any]
    limit: float

"""One pass over both tensors for all metrics of the tensor table, by the compiled engine or by numpy.

Both engines add in one order and give the same bits. Numpy measures what the compiled engine does not know:
complex data, float8, and distances in units of the last place (ulp) between two dtypes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from probe_core import engine
from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics import blocked
from probe_metrics.tally import NO_TOTALS, Array, Tally, Totals, Units
from probe_metrics.ulp_units import units_of

LARGEST = float(np.finfo(np.float64).max)
"""Largest finite number of float64."""
LEAST_SQUARE = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
"""Limit below which a sum of squares has lost digits: squares of small numbers leave the range of float64."""


_compiled = engine.compiled("probe_metrics.compiled")


class Sums(NamedTuple):
    """Result of one pass over a pair, and the numbers that follow from it.

    Attributes:
        tally: Counts, extrema and sums as the engine computed them.
        aligned: False if nan or inf are at different places; then no other field has a meaning.
        target_largest: The largest modulus of the target's finite elements; 0 if it has none.
        golden_largest: The same of the golden.
        target_norm: The L2 norm of the target.
        golden_norm: The L2 norm of the golden.
        distance: The L2 norm of the difference of both.
        dot_of_units: The dot product of both sides, each divided by its norm; 0 if a norm is 0.
    """

    tally: Tally
    aligned: bool
    target_largest: float
    golden_largest: float
    target_norm: float
    golden_norm: float
    distance: float
    dot_of_units: float


def sums(pair: OpenPair) -> Sums:
    """Return the sums over all elements of a pair; call it as ``pair.once(sums)``, so that metrics share it.

    If squares leave the range of float64, they are summed again from scaled values.
    """
    return _sums(pair, measure(pair, _units(pair)))


def measure_ahead(pairs: Sequence[OpenPair]) -> None:
    """Measure several pairs in one call of the compiled engine, and keep the results for ``pair.once(sums)``.

    Pairs that the compiled engine cannot measure in one piece are left to ``sums``.
    """
    if _compiled is None:
        return
    fitting = [
        (pair, (target, golden, _units(pair)))
        for pair in pairs
        for target, golden in itertools.islice(pair.flat(), 1)
        if target.size == pair.target.size and _compiled.supports(target, golden, _units(pair))
    ]
    for (pair, _), tally in zip(fitting, _compiled.measure_many(request for _, request in fitting)):
        pair.share(sums, _sums(pair, tally))


def _units(pair: OpenPair) -> Units | None:
    """Return the units of distances in ulp; None if no metric asks for them or the dtypes have none."""
    if pair.metrics is None or "ulp" in pair.metrics:
        return units_of(pair.target.dtype, pair.golden.dtype)
    return None


def _sums(pair: OpenPair, tally: Tally) -> Sums:
    target_largest = _largest(tally.target_max, tally.target_min)
    golden_largest = _largest(tally.golden_max, tally.golden_min)
    squares = (tally.target_squares, tally.golden_squares, tally.squares)
    dot = tally.dot
    scales = (1.0, 1.0, 1.0)
    largest = (target_largest, golden_largest, tally.max_absolute)
    if tally.apart == 0 and any(
        value > 0 and not LEAST_SQUARE < square < math.inf for value, square in zip(largest, squares)
    ):
        scales = tuple(min(value, LARGEST) or 1.0 for value in largest)  # type: ignore[assignment]
        *squares, dot = _scaled(pair, *scales)  # type: ignore[assignment]
    roots = [math.sqrt(square) for square in squares]
    target_norm, golden_norm, distance = (root * scale for root, scale in zip(roots, scales))
    cosine = dot / roots[0] / roots[1] if roots[0] and roots[1] else 0.0
    is_aligned = tally.apart == 0
    return Sums(tally, is_aligned, target_largest, golden_largest, target_norm, golden_norm, distance, cosine)


def measure(pair: OpenPair, units: Units | None) -> Tally:
    """Return the tally of a pair, piece by piece if the tensors are not contiguous."""
    tally: Tally | None = None
    totals = NO_TOTALS
    for target, golden in pair.flat():
        piece = _engine_for(target, golden, units)(target, golden, units, totals)
        tally = piece if tally is None else tally.then(piece)
        totals = tally.totals
    assert tally is not None, "tensors without elements are not measured"
    return tally


def _engine_for(
    target: Array, golden: Array, units: Units | None
) -> Callable[[Array, Array, Units | None, Totals], Tally]:
    if _compiled is not None and _compiled.supports(target, golden, units):
        return _compiled.measure  # type: ignore[no-any-return]
    return blocked.measure


def misaligned() -> Measurement:
    """Return the result of a tensor metric for a pair with nan or inf at different places."""
    return Measurement.absent("positions")


def mean_over_nothing() -> Measurement:
    """Return the result of a mean over elements of which none is finite."""
    return Measurement.absent("nan")


def _largest(high: float, low: float) -> float:
    return max(abs(high), abs(low)) if high >= low else 0.0


def _scaled(pair: OpenPair, *scales: float) -> tuple[float, float, float, float]:
    """Return sums of squares of target, golden and difference, and the dot product, of scaled values.

    Args:
        pair: Both tensors.
        scales: Divisors of target, golden and difference.
    """
    scaled_sums = [0.0] * 4
    with np.errstate(all="ignore"):
        for target, golden in pair.blocks():
            special = ~np.isfinite(target)
            target[special] = golden[special] = 0
            # complex numbers are divided by parts, since scales may be tiny
            first, second, difference = (
                (side.view(np.float64) / scale).view(side.dtype)
                for side, scale in zip((target, golden, target - golden), scales)
            )
            for position, (left, right) in enumerate(
                ((first, first), (second, second), (difference, difference), (second, first))
            ):
                scaled_sums[position] += float((left.real * right.real + left.imag * right.imag).sum())
    return scaled_sums[0], scaled_sums[1], scaled_sums[2], scaled_sums[3]

"""One pass over both tensors for all metrics of the tensor table, by the engine at hand.

The compiled engine and numpy's add in one order and give the same bits. What the compiled one does not
know (complex data, float8, distances in units of the last place between two dtypes) numpy does.
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
LEAST_SQUARE = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
"""Sums of squares below this lost digits, for squares fell out of the range of float64."""


_compiled = engine.compiled("probe_metrics.compiled")


class Sums(NamedTuple):
    """What one pass found out, and what follows from it alone.

    Attributes:
        tally: Counts, extrema and sums as the engine gave them.
        aligned: False where nan or inf stand at different places; then nothing else means anything.
        target_largest, golden_largest: The largest modulus of each side's finite elements, 0 without any.
        target_norm, golden_norm, distance: L2 norms of both sides and of their difference.
        dot_of_units: The dot product of both sides divided by their norms, 0 where a norm is 0.
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
    """The sums over the whole of both tensors; ask for it with ``pair.once(sums)``.

    Squares that leave the range of float64 are summed again, of scaled values.
    """
    return _sums(pair, measure(pair, _units(pair)))


def measure_ahead(pairs: Sequence[OpenPair]) -> None:
    """Do the passes of several pairs at once, so that ``pair.once(sums)`` has nothing left to do.

    Those that the compiled engine does not measure in one piece are left alone.
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
    """What distances are counted in, where they are asked for and there are any."""
    if pair.metrics is None or "ulp" in pair.metrics:
        return units_of(pair.target.dtype, pair.golden.dtype)
    return None


def _sums(pair: OpenPair, tally: Tally) -> Sums:
    ours = _largest(tally.target_max, tally.target_min)
    theirs = _largest(tally.golden_max, tally.golden_min)
    squares = (tally.target_squares, tally.golden_squares, tally.squares)
    dot = tally.dot
    scales = (1.0, 1.0, 1.0)
    largest = (ours, theirs, tally.max_absolute)
    if tally.apart == 0 and any(
        value > 0 and not LEAST_SQUARE < square < math.inf for value, square in zip(largest, squares)
    ):
        scales = tuple(min(value, LARGEST) or 1.0 for value in largest)  # type: ignore[assignment]
        *squares, dot = _scaled(pair, *scales)  # type: ignore[assignment]
    roots = [math.sqrt(square) for square in squares]
    target_norm, golden_norm, distance = (root * scale for root, scale in zip(roots, scales))
    cosine = dot / roots[0] / roots[1] if roots[0] and roots[1] else 0.0
    return Sums(tally, tally.apart == 0, ours, theirs, target_norm, golden_norm, distance, cosine)


def measure(pair: OpenPair, units: Units | None) -> Tally:
    """The tally of a pair, piece by piece where it is not to be had in one."""
    found: Tally | None = None
    totals = NO_TOTALS
    for target, golden in pair.flat():
        piece = _engine_for(target, golden, units)(target, golden, units, totals)
        found = piece if found is None else found.then(piece)
        totals = found.totals
    assert found is not None, "tensors without elements are not measured"
    return found


def _engine_for(
    target: Array, golden: Array, units: Units | None
) -> Callable[[Array, Array, Units | None, Totals], Tally]:
    if _compiled is not None and _compiled.supports(target, golden, units):
        return _compiled.measure  # type: ignore[no-any-return]
    return blocked.measure


def misaligned() -> Measurement:
    """What every tensor metric answers where nan or inf stand at different places."""
    return Measurement.absent("positions")


def mean_over_nothing() -> Measurement:
    """Answer for a mean over elements of which none is finite."""
    return Measurement.absent("nan")


def _largest(high: float, low: float) -> float:
    return max(abs(high), abs(low)) if high >= low else 0.0


def _scaled(pair: OpenPair, *scales: float) -> tuple[float, float, float, float]:
    """Sums of squares of both sides and of their difference, and the dot product, each side scaled."""
    found = [0.0] * 4
    with np.errstate(all="ignore"):
        for target, golden in pair.blocks():
            special = ~np.isfinite(target)
            target[special] = golden[special] = 0
            ours, theirs, apart = (
                (side.view(np.float64) / scale).view(
                    side.dtype
                )  # a complex number by parts: scales may be tiny
                for side, scale in zip((target, golden, target - golden), scales)
            )
            for position, (one, other) in enumerate(
                ((ours, ours), (theirs, theirs), (apart, apart), (theirs, ours))
            ):
                found[position] += float((one.real * other.real + one.imag * other.imag).sum())
    return found[0], found[1], found[2], found[3]

"""One pass over both tensors for all metrics of the tensor table, by the compiled engine or by numpy.

Both engines add in one order and give the same bits. NumPy measures what the compiled engine does not support:
complex data, float8, and distances in units of the last place (ulp) between two dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from probe_core import engine
from probe_core.model import Measurement
from probe_core.model.measure import OpenPair, PairGroup
from probe_core.model.results import MeasurementColumn
from probe_metrics import blocked
from probe_metrics.tally import NO_TOTALS, Array, Tallies, Tally, Totals, Units
from probe_metrics.ulp_units import choose_units

MAX_FLOAT64 = float(np.finfo(np.float64).max)
"""Largest finite number of float64."""
MIN_SQUARE_SUM = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
"""Limit below which a sum of squares has lost digits: squares of small numbers leave the range of float64."""


_compiled = engine.import_compiled("probe_metrics.compiled")


class GroupSums(NamedTuple):
    """Results of one pass over the pairs of a group, and the numbers that follow from them, as columns.

    Attributes:
        tally: Counts, extrema and sums as the engine computed them.
        is_aligned: False if nan or inf are at different places; then no other field has a meaning.
        target_largest: The largest modulus of the target's finite elements; 0 if it has none.
        golden_largest: The same of the golden.
        target_norm: The L2 norm of the target.
        golden_norm: The L2 norm of the golden.
        distance: The L2 norm of the difference of both.
        dot_of_units: The dot product of both sides, each divided by its norm; 0 if a norm is 0.
    """

    tally: Tallies
    is_aligned: Array
    target_largest: Array
    golden_largest: Array
    target_norm: Array
    golden_norm: Array
    distance: Array
    dot_of_units: Array


def compute_group_sums(group: PairGroup) -> GroupSums:
    """Return the sums of each pair of a group; call it as ``group.once(compute_group_sums)``.

    If squares leave the range of float64, they are summed again from scaled values.
    """
    tally = measure_tallies(group, _choose_units)
    target_largest = _find_largest_modulus(tally.target_max, tally.target_min)
    golden_largest = _find_largest_modulus(tally.golden_max, tally.golden_min)
    squares = np.stack((tally.target_squares, tally.golden_squares, tally.squares))
    largest = np.stack((target_largest, golden_largest, tally.max_absolute))
    dot, scales = tally.dot.copy(), np.ones_like(squares)
    is_aligned = tally.nonfinite_mismatches == 0
    is_lost = (largest > 0) & ~((squares > MIN_SQUARE_SUM) & (squares < np.inf))
    for place in np.flatnonzero(is_aligned & is_lost.any(axis=0)).tolist():
        scales[:, place] = [min(value, MAX_FLOAT64) or 1.0 for value in largest[:, place].tolist()]
        *squares[:, place], dot[place] = _sum_scaled(group[place], *scales[:, place].tolist())
    with np.errstate(all="ignore"):
        roots = np.sqrt(squares)
        norms = roots * scales
        cosine = np.where((roots[0] != 0) & (roots[1] != 0), dot / roots[0] / roots[1], 0.0)
    return GroupSums(tally, is_aligned, target_largest, golden_largest, norms[0], norms[1], norms[2], cosine)


def measure_ahead(group: PairGroup) -> None:
    """Compute the sums of a group in advance, for later calls of ``group.once(compute_group_sums)``."""
    group.once(compute_group_sums)


def measure_tallies(group: PairGroup, units_of: Callable[[OpenPair], Units | None]) -> Tallies:
    """Return the tallies of a group: those that the compiled engine can measure in one piece by one call.

    Args:
        group: The pairs.
        units_of: A function that returns the units of a pair's distances in ulp.
    """
    table = np.empty((len(group), len(Tally._fields)))
    places, requests = [], []
    for place, pair in enumerate(group):
        units = units_of(pair)
        target, golden = next(pair.flat())
        is_whole = target.size == pair.target.size
        if is_whole and _choose_engine(target, golden, units) is not blocked.measure:
            places.append(place)
            requests.append((target, golden, units))
        else:
            table[place] = measure(pair, units)
    if requests:
        table[places] = _compiled.measure_many(requests)  # type: ignore[union-attr]
    return Tallies(table)


def _choose_units(pair: OpenPair) -> Units | None:
    """Return the units of distances in ulp; None if no metric needs them or the dtypes have no ulp."""
    if pair.metrics is None or "ulp" in pair.metrics:
        return choose_units(pair.target.dtype, pair.golden.dtype)
    return None


def measure(pair: OpenPair, units: Units | None) -> Tally:
    """Return the tally of a pair, piece by piece if the tensors are not contiguous."""
    tally: Tally | None = None
    totals = NO_TOTALS
    for target, golden in pair.flat():
        piece = _choose_engine(target, golden, units)(target, golden, units, totals)
        tally = piece if tally is None else tally.add_next(piece)
        totals = tally.totals
    assert tally is not None, "tensors without elements are not measured"
    return tally


def _choose_engine(
    target: Array, golden: Array, units: Units | None
) -> Callable[[Array, Array, Units | None, Totals], Tally]:
    if _compiled is not None and _compiled.supports(target, golden, units):
        return _compiled.measure  # type: ignore[no-any-return]
    return blocked.measure


def build_column(numbers: Array, *absent: tuple[Array, Measurement]) -> MeasurementColumn:
    """Return a column of numbers, with other measurements for some pairs.

    Args:
        numbers: The numbers.
        absent: A mask with one value per pair, and the measurement where it is True. The first mask takes precedence.
    """
    result = MeasurementColumn(len(numbers), [measurement for _, measurement in absent])
    result.numbers[:] = numbers
    for code, (wanted, measurement) in reversed([*enumerate(absent, 1)]):
        is_float = isinstance(measurement.value, float)
        result.codes[wanted] = 0 if is_float else code
        if is_float:
            result.numbers[wanted] = measurement.value
    return result


MISALIGNED = Measurement.absent("positions")
"""The result of a tensor metric for a pair with nan or inf at different places."""
NO_DIMENSIONS = Measurement.absent("zero_dimensional")
"""The result of a metric that 0-d tensors do not have."""
NOTHING_FINITE = Measurement.absent("nan")
"""The result of a mean over elements if no element is finite."""


def find_zero_dimensional(group: PairGroup) -> Array:
    """Return True for the pairs of 0-d tensors."""
    return np.array([not pair.target.ndim for pair in group], bool)


def _find_largest_modulus(high: Array, low: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.where(high >= low, np.maximum(abs(high), abs(low)), 0.0)


def _sum_scaled(pair: OpenPair, *scales: float) -> tuple[float, float, float, float]:
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

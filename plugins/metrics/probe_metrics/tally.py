"""Result of one pass over a pair of tensors, the same from the compiled engine and from numpy."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, and_
from typing import Any, NamedTuple, get_type_hints

import numpy as np

Array = np.ndarray[Any, Any]

Totals = tuple[float, float, float, float, float, float, float, float]
"""Sums of a tally over its elements, in the order of its last eight fields."""

NO_TOTALS: Totals = (0.0,) * 8
"""Sums before the first element."""
SUM_COUNT = 8
"""Number of a tally's last fields that are sums over elements; a next piece goes on adding to them."""


class Tally(NamedTuple):
    """Counts, extrema and sums over both tensors; every error and every sum is computed in float64.

    * nan or inf, on both sides at the same place with the same sign, counts as equal and as 0
      (docs/tables.md#preparation). ``nonfinite_mismatches`` counts the places where the sides disagree on nan or inf.
    * Extrema are those of the finite elements of a side; -inf and inf if it has none.
    * Errors and sums take the places where both sides are finite; all other places add 0.
    * The relative error of an element is ``|N - B| / |B|``: 0 if N equals B, inf if only B is 0.
    * Complex data: errors and extrema are moduli; the sums ``target`` and ``golden`` are of the real parts.
    """

    size: int
    equal: bool  # every bit, and the dtype
    target_max: float
    target_min: float
    golden_max: float
    golden_min: float
    target_nan: int
    target_infinite: int
    golden_nan: int
    golden_infinite: int
    nonfinite_mismatches: int
    max_absolute: float
    max_relative: float
    max_ulp: float
    below_one: int  # number of relative errors below 1/1000
    below_five: int  # the same below 5/1000
    over_limit: int  # number of distances over the limit in ulp
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
        """Sums to go on with in the next piece of the tensors."""
        return self[-SUM_COUNT:]  # type: ignore[return-value]  # a slice of known length

    @property
    def finite(self) -> int:
        """Number of finite places, the same on both sides if ``nonfinite_mismatches`` is 0."""
        return self.size - self.target_nan - self.target_infinite

    def add_next(self, next_piece: Tally) -> Tally:
        """Return the tally of this piece and the next one, which was measured with the ``totals`` of this."""
        values = zip(self._fields[:-SUM_COUNT], self, next_piece)
        joined = (_JOINS.get(name, add)(value, next_value) for name, value, next_value in values)
        return Tally._make((*joined, *next_piece.totals))


_JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "equal": and_,
    **dict.fromkeys(("target_max", "golden_max", "max_absolute", "max_relative", "max_ulp"), max),
    **dict.fromkeys(("target_min", "golden_min"), min),
}
"""Functions that join fields of two pieces; the numbers of other fields are added."""


class Units(NamedTuple):
    """Dtype whose numbers are the units of distances in ulp, and the limit over which they are counted."""

    dtype: np.dtype[Any]
    limit: float


class Tallies:
    """The tallies of several pairs as columns, each an attribute with the name of a field of ``Tally``.

    Args:
        table: The fields of each tally as float64, which holds all counts exactly; of shape (pairs, fields).
    """

    def __init__(self, table: Array) -> None:
        self._table = table

    def __getattr__(self, field: str) -> Array:
        column: Array = self._table[:, _FIELD_PLACES[field]]
        return column

    def __getitem__(self, place: int) -> Tally:
        row = self._table[place].tolist()
        return Tally(*(kind(number) for kind, number in zip(_KINDS, row)))

    @property
    def finite(self) -> Array:
        """``Tally.finite`` of each pair."""
        finite: Array = self.size - self.target_nan - self.target_infinite
        return finite


_FIELD_PLACES = {name: place for place, name in enumerate(Tally._fields)}
_KINDS = [*get_type_hints(Tally).values()]

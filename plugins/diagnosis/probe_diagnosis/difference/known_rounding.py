"""Values of a rank whose differences are known to be rounding."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Set

import numpy as np

from probe_diagnosis.difference.nodes import Fingerprint
from probe_diagnosis.difference.rank_cursor import RankCursor
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.value_table import DIFFERS_CODE, IS_SCALAR, IS_SOURCE, measure_multiples


class KnownRounding:
    """Values of a rank whose differences are known to be rounding.

    Args:
        cursor: The position of the rank.
        values: Known values. The values that calls compute from them are known as well.
        carried: Parameters and states that an optimizer changed by rounding in earlier steps. Values that forward
            calls compute from these alone are known as well.

    Attributes:
        values: The known values, such as gradients that are small relative to the inputs of their calls. A parameter
            with such a gradient is not reported.
    """

    def __init__(
        self, cursor: RankCursor, values: Set[Fingerprint] = frozenset(), carried: Iterable[Fingerprint] = ()
    ) -> None:
        self._cursor = cursor
        self._calls = cursor.calls
        self._carried = {*carried}
        self.values = {*values, *self._carried}
        self._ratios = sorted(_collect_ratios(self.values))
        if values:
            self._propagate()

    def absorb_optimizer_call(self, number: int, noise: float) -> bool:
        """Return True if a call receives known rounding; the differences of its outputs then become known rounding.

        For example, an optimizer that divides a gradient by its magnitude amplifies the rounding of a small
        gradient to the size of an update, and stores it in its state.

        Args:
            number: The number of the call.
            noise: The coarsest rounding so far. A value is known as well if its distance relative to its scale is that
                of a known value, as for a gradient that was clipped.
        """
        if not self.values or self._calls.has_differing_argument[number]:
            return False
        differing_values = {*collect_differing_values(self._calls, number)}
        if differing_values.isdisjoint(self.values) and not self._are_multiples(differing_values, noise):
            return False
        self.values |= differing_values
        return True

    def absorb_forward_call(self, number: int, input_distance: float, noise: float) -> bool:
        """Return True if all differing inputs of a forward call are carried rounding; its outputs then are as well.

        Args:
            number: The number of the call.
            input_distance: The largest difference of its inputs, as a multiple of rounding.
            noise: The coarsest rounding so far.
        """
        if not self._carried or input_distance <= 1 or self._calls.has_differing_argument[number]:
            return False
        if self._calls.is_backward[number] or self._cursor.is_of_optimizer():
            return False
        if not _collect_inputs_beyond(self._calls, number, noise) <= self._carried:
            return False
        self._carried.update(collect_differing_values(self._calls, number, outputs_only=True))
        return True

    def add_outputs(self, number: int) -> None:
        """Add the outputs of a call that differ."""
        values = collect_differing_values(self._calls, number, outputs_only=True)
        self.values.update(values)
        for ratio in _collect_ratios(values):
            insort(self._ratios, ratio)

    def _are_multiples(self, values: Set[Fingerprint], noise: float) -> bool:
        """Return True if one of the values has the relative distance of a known value, within its rounding."""
        ratios = self._ratios
        places = ((bisect_left(ratios, ratio - noise), ratio + noise) for ratio in _collect_ratios(values))
        return any(place < len(ratios) and ratios[place] <= most for place, most in places)

    def _propagate(self) -> None:
        """Add the differing values of all calls that use known rounding.

        All calls are visited until nothing changes, because the states of an optimizer change before they are
        combined with a gradient.
        """
        numbers = np.flatnonzero(self._calls.has_any(self._calls.table.differs)).tolist()
        values_by_call = [{*collect_differing_values(self._calls, number)} for number in numbers]
        count = -1
        while count != len(self.values):
            count = len(self.values)
            for values in values_by_call:
                if not values.isdisjoint(self.values):
                    self.values |= values


def _collect_ratios(values: Iterable[Fingerprint]) -> set[float]:
    """Return the distances of values relative to their scales."""
    return {distance / scale for distance, scale in values if scale > 0}


def collect_differing_values(calls: CallColumns, number: int, *, outputs_only: bool = False) -> list[Fingerprint]:
    """Return the values of a call that differ."""
    lines = calls.get_lines(number)
    rows = calls.table.lines[lines.start : lines.stop]
    is_selected = rows["state"] == DIFFERS_CODE
    if outputs_only:
        is_selected &= ~IS_SOURCE[rows["side"]]
    return list(zip(rows["distance"][is_selected].tolist(), rows["scale"][is_selected].tolist()))


def _collect_inputs_beyond(calls: CallColumns, number: int, noise: float) -> set[Fingerprint]:
    """Return the input tensors of a call that differ by more than rounding."""
    lines = calls.get_lines(number)
    rows = calls.table.lines[lines.start : lines.stop]
    is_input = IS_SOURCE[rows["side"]] & (rows["flags"] & IS_SCALAR == 0)
    is_beyond = is_input & (measure_multiples(rows, rows["scale"], noise) > 1)
    return {*zip(rows["distance"][is_beyond].tolist(), rows["scale"][is_beyond].tolist())}

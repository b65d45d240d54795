"""The largest differences of each call of a rank, as multiples of rounding."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from probe_core.model.columns import Array
from probe_core.store.names import is_gradient
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.order import has_own_scale, is_backward
from probe_diagnosis.timeline.value_table import IS_IN_REGION, IS_SCALAR, IS_SOURCE, UNJUDGED_CODE, measure_multiples


class LargestDifferences:
    """The largest differences of the values of each call, by the numbers of the calls.

    Args:
        calls: The calls of a rank.
        order: Their numbers in the order of their effects.
        noise: The relative distance that rounding explains before the first call.

    Attributes:
        noise: The coarsest rounding up to each call.
        taken: The largest difference of the inputs.
        own: The largest difference of the outputs, each measured against itself.
        given: The same, measured against the scale of the call as well (``_compute_scales``).
        taken_lines: The line that has it; likewise ``own_lines`` and ``given_lines``.
        agrees: ``CallColumns.agrees``.
        lacking: Number of tensors that were not compared.
        is_of_parameters: True for gradients of parameters.
        returns_other: True for calls with an output that differs.
        returns_in_region: True for calls with an output that differs where calls do not line up.
    """

    def __init__(self, calls: CallColumns, order: Sequence[int], noise: float = 0.0) -> None:
        self._calls, table = calls, calls.table
        places = np.array(order, int)
        lines, is_tensor, is_source = table.lines, table.is_tensor, table.is_source
        bounds = np.zeros(len(calls))
        own_bounds = calls.find_largest(np.where(is_tensor, lines["noise"], 0.0))
        bounds[places] = np.maximum(np.maximum.accumulate(own_bounds[places]), noise)
        multiples = measure_multiples(lines, lines["scale"], bounds[calls.call_of])
        largest_inputs, self.taken_lines = self._find_largest(np.where(is_source & is_tensor, multiples, 0.0))
        largest_outputs, self.own_lines = self._find_largest(np.where(is_source, 0.0, multiples))
        is_gradient_of = [is_gradient(key) for key in calls.keys]
        self._scale = self._compute_scales(largest_outputs > 1, is_gradient_of)
        scaled_multiples = measure_multiples(
            lines, np.maximum(lines["scale"], self._scale[calls.call_of]), bounds[calls.call_of]
        )
        largest_scaled_outputs, self.given_lines = self._find_largest(np.where(is_source, 0.0, scaled_multiples))
        self.noise, self.taken, self.own, self.given = (
            numbers.tolist() for numbers in (bounds, largest_inputs, largest_outputs, largest_scaled_outputs)
        )
        self.agrees, self.lacking = calls.agrees.tolist(), calls.lacking.tolist()
        self.is_of_parameters = is_gradient_of
        self.returns_other = calls.has_any(table.differs & ~is_source).tolist()
        is_in_region = (lines["flags"] & IS_IN_REGION > 0) & (lines["state"] == UNJUDGED_CODE)
        self.returns_in_region = calls.has_any(is_in_region & ~is_source).tolist()

    def _find_largest(self, numbers: Array) -> tuple[Array, Sequence[int]]:
        """Return the largest number of each call, and the first line that has it; -1 if all are 0."""
        calls = self._calls
        largest = calls.find_largest(numbers)
        holders = np.flatnonzero((numbers > 0) & (numbers == largest[calls.call_of]))
        owners = calls.call_of[holders]
        is_first = np.diff(owners, prepend=-1) != 0
        places = np.full(len(calls), -1)
        places[owners[is_first]] = holders[is_first]
        return largest, places.tolist()

    def _compute_scales(self, wanted: Array, is_gradient_of: Sequence[bool]) -> Array:
        """Return the scale that the outputs of each wanted call are measured against besides their own.

        The gradients of a module's parameters are measured against the largest of them. One that is zero in
        theory, such as that of a bias in front of a normalisation, holds nothing but rounding. So does it
        where a backward call returns it beside others. Integers among the inputs, such as positions, have no
        rounding that they could pass on.
        """
        calls, table = self._calls, self._calls.table
        scale, is_float = table.lines["scale"], table.lines["noise"] > 0
        of_all = calls.find_largest(scale)
        of_floats = calls.find_largest(np.where(is_float, scale, 0.0))
        of_inputs = calls.find_largest(np.where(is_float & table.is_source & table.is_tensor, scale, 0.0))
        scales = np.zeros(len(calls))
        for number in np.flatnonzero(wanted).tolist():
            key = calls.keys[number]
            if is_gradient_of[number]:
                scales[number] = of_all[number]
            elif not has_own_scale(key):
                scales[number] = of_floats[number] if is_backward(key) else of_inputs[number]
        return scales

    def exclude_known(
        self, number: int, known_values: Set[tuple[float, float]], *, of_inputs: bool = False
    ) -> tuple[float, int]:
        """Return the largest difference of the outputs or inputs of a call, and its line, without known ones.

        Args:
            number: The call.
            known_values: The distances and scales to leave out.
            of_inputs: True for the input tensors, each measured against itself.
        """
        span = self._calls.lines(number)
        rows = self._calls.table.lines[span.start : span.stop]
        is_source = IS_SOURCE[rows["side"]]
        wanted = is_source & (rows["flags"] & IS_SCALAR == 0) if of_inputs else ~is_source
        is_known = [pair in known_values for pair in zip(rows["distance"].tolist(), rows["scale"].tolist())]
        scale = rows["scale"] if of_inputs else np.maximum(rows["scale"], self._scale[number])
        multiples = np.where(
            wanted & ~np.array(is_known, bool), measure_multiples(rows, scale, self.noise[number]), 0.0
        )
        largest = float(multiples.max(initial=0.0))
        return largest, span.start + int(multiples.argmax()) if largest else -1

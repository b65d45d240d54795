"""The largest differences of each call of a rank, as multiples of rounding."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from probe_core.model.columns import Array
from probe_diagnosis.difference.nodes import Fingerprint
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.compared_calls import Basis
from probe_diagnosis.timeline.order import has_own_scale
from probe_diagnosis.timeline.value_table import (
    DIFFERS_CODE,
    IS_IN_REGION,
    IS_SCALAR,
    IS_SOURCE,
    UNJUDGED_CODE,
    measure_multiples,
)


@dataclass(frozen=True, slots=True)
class LargestDifferences:
    """The largest differences of the values of each call, by the numbers of the calls.

    Attributes:
        calls: The calls of a rank.
        noise: The coarsest rounding up to each call.
        scales: The scale of each call (``_compute_scales``).
        input_distances: The largest difference of the inputs.
        input_lines: The line of the table that has ``input_distances``; -1 if nothing differs.
        output_distances: The largest difference of the outputs, each relative to its own scale.
        output_lines: The line of the table that has ``output_distances``; -1 if nothing differs.
        scaled_output_distances: The largest difference of the outputs, each relative to the larger one of its own
            scale and that of the call.
        scaled_output_lines: The line of the table that has ``scaled_output_distances``; -1 if nothing differs.
        outputs_agree: True for calls whose floating-point outputs were all compared and agree.
        not_compared: Number of tensors that were not compared.
        is_of_parameters: True for gradients of parameters.
        returns_difference: True for calls with an output that differs.
        returns_in_region: True for calls with an output that differs where calls do not line up.
        jumps: For each line of the table, the growth of a difference that its call explains.
        is_by_statistics: True for lines that were compared by their statistics.
        is_exact: True for lines with a finite difference of values that have no rounding, such as integers.
    """

    calls: CallColumns
    noise: Sequence[float]
    scales: Array
    input_distances: Sequence[float]
    input_lines: Sequence[int]
    output_distances: Sequence[float]
    output_lines: Sequence[int]
    scaled_output_distances: Sequence[float]
    scaled_output_lines: Sequence[int]
    outputs_agree: Sequence[bool]
    not_compared: Sequence[int]
    is_of_parameters: Sequence[bool]
    returns_difference: Sequence[bool]
    returns_in_region: Sequence[bool]
    jumps: Sequence[float]
    is_by_statistics: Sequence[bool]
    is_exact: Sequence[bool]

    def exclude_known_outputs(self, number: int, known_values: Set[Fingerprint]) -> tuple[float, int]:
        """Return the largest difference of the outputs of a call, and its line, without known values."""
        rows = self._get_rows(number)
        scale = np.maximum(rows["scale"], self.scales[number])
        return self._exclude_known(number, ~IS_SOURCE[rows["side"]], scale, known_values)

    def exclude_known_inputs(self, number: int, known_values: Set[Fingerprint]) -> tuple[float, int]:
        """Return the largest difference of the input tensors of a call, and its line, without known values."""
        rows = self._get_rows(number)
        is_input = IS_SOURCE[rows["side"]] & (rows["flags"] & IS_SCALAR == 0)
        return self._exclude_known(number, is_input, rows["scale"], known_values)

    def collect_output_ratios(self, number: int) -> set[float]:
        """Return distance divided by scale of the outputs of a call that differ."""
        rows = self._get_rows(number)
        rows = rows[~IS_SOURCE[rows["side"]] & (rows["state"] == DIFFERS_CODE) & (rows["scale"] > 0)]
        return {*(rows["distance"] / rows["scale"]).tolist()}

    def exclude_inputs_by_ratio(self, number: int, ratios: Set[float]) -> tuple[float, int]:
        """Return the largest difference of the input tensors of a call, and its line, without values of some ratios.

        Args:
            number: The number of the call.
            ratios: Quotients of distance and scale. A gradient keeps its quotient, within rounding, when it is divided
                by the scale of mixed precision or clipped by its norm.
        """
        rows = self._get_rows(number)
        is_input = IS_SOURCE[rows["side"]] & (rows["flags"] & IS_SCALAR == 0)
        quotients = np.divide(rows["distance"], rows["scale"], out=np.zeros(len(rows)), where=rows["scale"] > 0)
        known_ratios = np.array([*ratios])
        tolerances = self.noise[number] * known_ratios
        is_known = (np.abs(quotients[:, np.newaxis] - known_ratios) <= tolerances).any(axis=1)
        return self._find_largest_row(number, is_input & ~is_known, rows["scale"])

    def _get_rows(self, number: int) -> Array:
        lines = self.calls.get_lines(number)
        return self.calls.table.lines[lines.start : lines.stop]

    def _exclude_known(
        self, number: int, is_selected: Array, scale: Array, known_values: Set[Fingerprint]
    ) -> tuple[float, int]:
        rows = self._get_rows(number)
        is_known = [value in known_values for value in zip(rows["distance"].tolist(), rows["scale"].tolist())]
        return self._find_largest_row(number, is_selected & ~np.array(is_known, bool), scale)

    def _find_largest_row(self, number: int, is_selected: Array, scale: Array) -> tuple[float, int]:
        multiples = np.where(is_selected, measure_multiples(self._get_rows(number), scale, self.noise[number]), 0.0)
        largest_multiple = float(multiples.max(initial=0.0))
        line = self.calls.starts[number] + int(multiples.argmax()) if largest_multiple else -1
        return largest_multiple, line


def compute_largest_differences(calls: CallColumns, noise: float = 0.0) -> LargestDifferences:
    """Return the largest differences of the values of each call.

    Args:
        calls: The calls of a rank.
        noise: The relative distance that rounding explains before the first call.
    """
    table, call_of = calls.table, calls.call_numbers
    lines, is_source = table.lines, table.is_source
    bounds = _compute_noise(calls, noise)
    multiples = measure_multiples(lines, lines["scale"], bounds[call_of])
    input_distances, input_lines = _find_largest(calls, np.where(is_source & table.is_tensor, multiples, 0.0))
    output_distances, output_lines = _find_largest(calls, np.where(is_source, 0.0, multiples))
    scales = _compute_scales(calls, output_distances > 1)
    scaled_multiples = measure_multiples(lines, np.maximum(lines["scale"], scales[call_of]), bounds[call_of])
    scaled_output_distances, scaled_output_lines = _find_largest(calls, np.where(is_source, 0.0, scaled_multiples))
    is_in_region = (lines["flags"] & IS_IN_REGION > 0) & (lines["state"] == UNJUDGED_CODE)
    return LargestDifferences(
        calls,
        noise=bounds.tolist(),
        scales=scales,
        input_distances=input_distances.tolist(),
        input_lines=input_lines,
        output_distances=output_distances.tolist(),
        output_lines=output_lines,
        scaled_output_distances=scaled_output_distances.tolist(),
        scaled_output_lines=scaled_output_lines,
        outputs_agree=calls.outputs_agree.tolist(),
        not_compared=calls.not_compared_counts.tolist(),
        is_of_parameters=calls.is_gradient,
        returns_difference=calls.has_any(table.differs & ~is_source).tolist(),
        returns_in_region=calls.has_any(is_in_region & ~is_source).tolist(),
        jumps=lines["jump"].tolist(),
        is_by_statistics=(lines["basis"] == Basis.STATISTICS).tolist(),
        is_exact=((lines["noise"] == 0) & np.isfinite(lines["distance"])).tolist(),
    )


def _compute_noise(calls: CallColumns, noise: float) -> Array:
    """Return the coarsest rounding of the tensors up to each call."""
    numbers = np.array(calls.effect_order, int)
    bounds = np.zeros(len(calls))
    own_bounds = calls.find_largest(np.where(calls.table.is_tensor, calls.table.lines["noise"], 0.0))
    bounds[numbers] = np.maximum(np.maximum.accumulate(own_bounds[numbers]), noise)
    return bounds


def _find_largest(calls: CallColumns, multiples: Array) -> tuple[Array, Sequence[int]]:
    """Return the largest multiple of each call, and the first line that has it; -1 if all are 0."""
    largest = calls.find_largest(multiples)
    lines = np.flatnonzero((multiples > 0) & (multiples == largest[calls.call_numbers]))
    owners = calls.call_numbers[lines]
    is_first = np.diff(owners, prepend=-1) != 0
    first_lines = np.full(len(calls), -1)
    first_lines[owners[is_first]] = lines[is_first]
    return largest, first_lines.tolist()


def _compute_scales(calls: CallColumns, is_beyond_rounding: Array) -> Array:
    """Return the scale of each call whose outputs differ by more than rounding; 0 for other calls.

    The gradients of a module's parameters are measured relative to the largest of them. A gradient that is zero in
    theory, such as that of a bias before a normalization, contains only rounding, also if a backward call returns it
    with other gradients. Integers among the inputs, such as positions, are exact, so they do not count.

    Example:
        ``sub`` receives values of up to 1000 and returns values of up to 1. The rounding of its inputs explains a
        difference of the outputs of up to 1000 times the relative rounding, so the scale of the call is 1000.
    """
    table = calls.table
    scale, is_float = table.lines["scale"], table.lines["noise"] > 0
    all_scales = calls.find_largest(scale)
    float_scales = calls.find_largest(np.where(is_float, scale, 0.0))
    input_scales = calls.find_largest(np.where(is_float & table.is_source & table.is_tensor, scale, 0.0))
    scales = np.zeros(len(calls))
    for number in np.flatnonzero(is_beyond_rounding).tolist():
        key = calls.keys[number]
        if calls.is_gradient[number]:
            scales[number] = all_scales[number]
        elif not has_own_scale(key):
            scales[number] = float_scales[number] if calls.is_backward[number] else input_scales[number]
    return scales

"""The walk of a rank through its calls: the state that decides which calls are reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from probe_diagnosis.difference.known_rounding import KnownRounding
from probe_diagnosis.difference.largest import LargestDifferences, compute_largest_differences
from probe_diagnosis.difference.nodes import Fingerprint, RankHistory
from probe_diagnosis.difference.rank_cursor import RankCursor
from probe_diagnosis.difference.reasons import DivergenceReason
from probe_diagnosis.difference.reported_nodes import ReportedNodes


@dataclass(frozen=True, slots=True)
class CallDistances:
    """The largest differences of a call, as multiples of rounding.

    Attributes:
        input_distance: That of the inputs.
        output_distance: That of the outputs, each relative to its own scale.
        scaled_output_distance: That of the outputs, relative to the scale of the call as well.
        scaled_output_line: The line of the table that has ``scaled_output_distance``; -1 if nothing differs.
        saved_distance: That of the values of the forward call that a backward call may read; for gradients of
            parameters, that of all earlier values.
    """

    input_distance: float
    output_distance: float
    scaled_output_distance: float
    scaled_output_line: int
    saved_distance: float


@dataclass(frozen=True, slots=True)
class CallDecision:
    """The result of examining a call, which a walker applies to its state.

    Attributes:
        distances: The largest differences of the call.
        reason: The reason for reporting the call as the first difference; None if it is not reported.
        further_reason: The reason for adding the call to the further causes; None if it is not added.
        replaced_reasons: The reasons for reporting outputs of a call that does not line up.
        growth_reason: The reason for noting that a difference grew up to this call; None if it did not.
        is_changed_call: True if the call has a different argument and its outputs differ, even slightly.
    """

    distances: CallDistances
    reason: DivergenceReason | None = None
    further_reason: DivergenceReason | None = None
    replaced_reasons: Sequence[DivergenceReason] = ()
    growth_reason: DivergenceReason | None = None
    is_changed_call: bool = False


class Walker:
    """The walk of a rank through its calls. All differences are multiples of rounding.

    Args:
        cursor: The position of the rank before its first call.
        known_values: Values that differ only by rounding.
        carried: Parameters and states that an optimizer changed by rounding in earlier steps.
        history: The history of the rank before its first call.

    Attributes:
        cursor: The position of the rank in its calls.
        history: The history of the rank.
        known_rounding: The values that differ only by rounding.
        reported: The differences that were reported.
        largest: The largest differences of each call.
    """

    def __init__(
        self,
        cursor: RankCursor,
        known_values: Set[Fingerprint],
        carried: Iterable[Fingerprint],
        history: RankHistory,
    ) -> None:
        self.cursor = cursor
        self.history = history
        self.known_rounding = KnownRounding(self.cursor, known_values, carried)
        self.reported = ReportedNodes(self.cursor, history)
        self.largest: LargestDifferences = compute_largest_differences(cursor.calls, history.noise)
        self._calls = cursor.calls
        self._saved_distances: dict[str, float] = {}
        self._explained_modules: set[str] = set()
        self._explained_multiple = history.largest_multiple
        self._gradient_multiple: float | None = None
        self._gradient_ratios: set[float] = set()

    def enter_call(self, number: int) -> bool:
        """Bring the state up to date before a call.

        Returns:
            False if known rounding explains all differences of the call, so that it is not examined.
        """
        self.reported.enter_modules(number)
        if self.largest.outputs_agree[number]:
            self.reported.withdraw_vanished(number)
        self._settle_gradients(number)
        self._update_noise(number)
        is_of_optimizer = self.cursor.is_of_optimizer() and not self.largest.is_of_parameters[number]
        if is_of_optimizer and self.known_rounding.absorb_optimizer_call(number, self.history.noise):
            return False
        input_distance = self.largest.input_distances[number]
        return not self.known_rounding.absorb_forward_call(number, input_distance, self.history.noise)

    def measure_call(self, number: int) -> CallDistances:
        """Return the largest differences of a call."""
        largest, known_values = self.largest, self.known_rounding.values
        scaled_output_distance = largest.scaled_output_distances[number]
        line = largest.scaled_output_lines[number]
        is_of_parameters = largest.is_of_parameters[number]
        if is_of_parameters and largest.output_distances[number] and known_values:
            scaled_output_distance, line = largest.exclude_known_outputs(number, known_values)
        return CallDistances(
            largest.input_distances[number],
            largest.output_distances[number],
            scaled_output_distance,
            line,
            self.history.largest_multiple if is_of_parameters else self._get_saved_distance(number),
        )

    def measure_received(self, number: int) -> tuple[float, int]:
        """Return the largest difference of the inputs of a call, and its line, without gradients of parameters.

        Gradients were measured when the backward pass returned them, relative to the largest gradient of their module.
        """
        if self._gradient_ratios and self.cursor.is_of_optimizer():
            return self.largest.exclude_inputs_by_ratio(number, self._gradient_ratios)
        return self.largest.input_distances[number], self.largest.input_lines[number]

    def is_explained_module(self, number: int) -> bool:
        """Return True for a module that contains a call whose outputs differ, which explains its own differences."""
        return self._calls.keys[number] in self._explained_modules

    def apply(self, number: int, decision: CallDecision) -> None:
        """Apply the result of examining a call."""
        distances, reported, history = decision.distances, self.reported, self.history
        key, had_reported = self._calls.keys[number], history.has_reported
        if decision.reason is not None:
            reported.report_call(number, decision.reason)
        elif decision.further_reason is not None:
            reported.add_further(number, decision.further_reason)
        self._record_distances(number, distances)
        if had_reported and max(distances.input_distance, distances.scaled_output_distance) > 1:
            reported.downstream.append(key)
        for reason in decision.replaced_reasons:
            reported.add_replaced(number, reason)
        if decision.growth_reason is not None:
            reported.note_growth(number, decision.growth_reason)
        history.largest_multiple = max(history.largest_multiple, distances.input_distance, distances.output_distance)
        if decision.is_changed_call and not history.changed_call:
            history.changed_call = key
        history.not_compared += self.largest.not_compared[number]

    def _record_distances(self, number: int, distances: CallDistances) -> None:
        """Record the differences of a call that explain differences of later calls."""
        if self.largest.is_of_parameters[number]:
            self._gradient_multiple = max(self._gradient_multiple or 0.0, distances.scaled_output_distance)
            self._gradient_ratios.update(self.largest.collect_output_ratios(number))
        elif not self._calls.is_backward[number]:
            saved_distance = max(distances.input_distance, distances.output_distance)
            if saved_distance:
                self._saved_distances[self._calls.keys[number]] = saved_distance
        if distances.scaled_output_distance > 1:
            self._explained_modules.update(self._calls.modules[number])
        elif distances.output_distance and self.largest.returns_difference[number]:
            self.known_rounding.add_outputs(number)

    def _get_saved_distance(self, number: int) -> float:
        """Return the largest difference that a backward call may read from its forward call; 0 for other calls."""
        if not self._calls.is_backward[number]:
            return 0.0
        return self._saved_distances.get(self._calls.keys[number].replace(".backward", ".forward"), 0.0)

    def _update_noise(self, number: int) -> None:
        """Record the coarsest rounding up to a call; if communication made it coarser, measure again."""
        if self.history.noise > self.largest.noise[number]:
            self.largest = compute_largest_differences(self._calls, self.history.noise)
        self.history.noise = self.largest.noise[number]

    def _settle_gradients(self, number: int) -> None:
        """Before an optimizer steps, set the largest difference so far to that of the gradients it receives.

        The gradients of a module are measured relative to the largest of them. Differences that earlier steps explain
        remain.
        """
        if self._gradient_multiple is None or self.history.has_reported or self.largest.is_of_parameters[number]:
            return
        if self.cursor.is_of_optimizer():
            self.history.largest_multiple = max(self._gradient_multiple, self._explained_multiple)
            self._gradient_multiple = None

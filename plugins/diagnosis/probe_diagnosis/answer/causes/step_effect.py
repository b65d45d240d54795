"""The effect of a difference on the end of a step: the loss, and the gradients of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from probe_core.store.names import is_gradient
from probe_diagnosis.difference.nodes import Node, is_large
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.compared_calls import Basis, ComparedCall, ValueState


class StepEffect:
    """The ends of a step: its last forward call, which returns the loss, and the gradients of parameters.

    Without a backward pass the last call is that of the model itself.

    Args:
        calls: The calls of the rank.
    """

    def __init__(self, calls: CallColumns) -> None:
        self._calls = calls

    @cached_property
    def _indices(self) -> dict[str, int]:
        """The indices of the calls in the order of their effects."""
        keys = self._calls.keys
        return {keys[number]: index for index, number in reversed([*enumerate(self._calls.effect_order)])}

    @cached_property
    def _ends(self) -> list[int]:
        """The indices of the ends in the order of the effects."""
        calls, order = self._calls, self._calls.effect_order
        marks = [calls.is_backward[number] or calls.is_gradient[number] for number in order]
        last = (marks.index(True) if True in marks else len(marks)) - 1
        return [index for index, number in enumerate(order) if index == last or calls.is_gradient[number]]

    def _get_call(self, index: int) -> ComparedCall:
        return self._calls[self._calls.effect_order[index]]

    def is_rounding(self, node: Node, *, is_continued: bool = False) -> bool:
        """Return True if the effects of a difference show that it is rounding.

        All ends downstream of the difference were compared and agree, and all differences are at most a few
        roundings. A different argument is not rounding, nor is a difference of statistics or checksums.

        Args:
            node: The call where the runs diverge.
            is_continued: True if earlier steps differ only by rounding, which the state of an optimizer carries
                into this step. A difference that grows from call to call is then rounding if all ends agree.
        """
        reason = node.reason
        if is_continued and reason.cause is CauseKind.GROWN and reason.value.basis != Basis.CHECKSUM:
            return reason.argument is None and self.are_ends_same()
        if reason.cause not in (CauseKind.GROWN, CauseKind.INTRODUCED) or reason.argument is not None:
            return False
        if (
            reason.value.basis != Basis.TENSOR
            or not reason.value.is_float
            or reason.largest_multiple > limits().min_grown_multiple
        ):
            return False
        index = self._find_index(node)
        downstream = [self._get_call(end) for end in self._ends if end > index]
        return (
            bool(downstream)
            and all(op.outputs_agree for op in downstream)
            and self._find_largest() <= limits().min_grown_multiple
        )

    def find_traceless_calls(
        self, named: Sequence[Node], vanished: Sequence[Node], *, is_rounding_before: bool, is_continued: bool
    ) -> list[Node]:
        """Return the calls that differ before the end of the backward pass, if that leaves no trace.

        The loss and all later gradients of parameters were compared and agree. The difference may be large, such as
        that of another order of summands, or rounding of an optimizer, such as that of a bias that a norm removes. A
        small difference may be too small to show in the loss, so it remains a cause. A call that returns different
        values from equal inputs remains a cause as well, because the program may print these values.

        Args:
            named: The calls where the runs diverge.
            vanished: Calls within modules whose outputs agree.
            is_rounding_before: True if parameters differ before the step by rounding of an optimizer.
            is_continued: True if earlier steps agree except for rounding; then differences of the backward pass
                need not show in the loss.
        """
        nodes = [*named, *vanished]
        indices = {node.call.op: self._find_index(node) for node in nodes}
        early = [node for node in nodes if self._ends and indices[node.call.op] <= self._ends[-1]]
        is_after_loss = bool(early) and self._ends[0] < min(indices.values())
        if not early or (is_after_loss and not is_continued) or not self.are_ends_same():
            return []
        may = all(
            self._can_vanish(node, is_rounding_before or is_continued)
            or (node in vanished and node.reason.value.basis == Basis.TENSOR)
            for node in early
        )
        return early if may else []

    def are_ends_same(self) -> bool:
        """Return True if the loss and all gradients of parameters were compared and agree."""
        ends = [self._get_call(end) for end in self._ends]
        outputs = [value for op in ends for value in op.outputs()]
        if not any(is_gradient(op.op) for op in ends):
            return False
        is_known = all(
            value.state == ValueState.SAME
            or (value.state == ValueState.DIFFERS and value.is_float and value.basis != Basis.CHECKSUM)
            for value in outputs
        )
        return is_known and self.find_largest_effect()[0] <= 1

    def _can_vanish(self, node: Node, is_rounding: bool) -> bool:
        reason = node.reason
        if reason.cause not in (CauseKind.GROWN, CauseKind.RECEIVED) or reason.argument is not None:
            return False
        value = reason.value
        if value.basis == Basis.CHECKSUM:
            return False
        return is_rounding or value.is_exact or is_large(value)

    def find_isolated_calls(self) -> set[int]:
        """Return the numbers of calls outside of modules whose differences reach no other kind of call.

        They receive tensors that no call computed, and no call receives their outputs. The program computes these
        values about itself, such as the duration of its steps.
        """
        received, returned = (
            self._collect_differing_values(is_source=True),
            self._collect_differing_values(is_source=False),
        )
        calls, table = self._calls, self._calls.table
        receives = calls.has_any(table.differs & table.is_source & table.is_tensor)
        hides = calls.has_any(~table.is_source & table.is_tensor) & ~calls.has_any(table.differs & ~table.is_source)
        takers = {value for values in received.values() for value in values}
        isolated_calls = {
            number
            for number in received.keys() | returned.keys()
            if receives[number] and not (hides[number] or calls.has_differing_argument[number])
            if not calls.modules[number] and not (returned.get(number, set()) - received[number]) & takers
        }
        of_others: set[tuple[float, float]] = set()
        previous = set[int]()
        while previous != isolated_calls:  # a call that shares a value with another call is not isolated
            previous = isolated_calls
            for values in (received, returned):
                of_others.update(
                    *(call_values for number, call_values in values.items() if number not in isolated_calls)
                )
            isolated_calls = {number for number in isolated_calls if of_others.isdisjoint(received[number])}
        return isolated_calls

    def _collect_differing_values(self, *, is_source: bool) -> dict[int, set[tuple[float, float]]]:
        """Return distance and scale of all values that differ, received or returned, by the calls."""
        table = self._calls.table
        lines = np.flatnonzero(table.differs & (table.is_source == is_source))
        rows, owners = table.lines[lines], self._calls.call_numbers[lines].tolist()
        values_by_call: dict[int, set[tuple[float, float]]] = {}
        for number, distance, scale in zip(owners, rows["distance"].tolist(), rows["scale"].tolist()):
            values_by_call.setdefault(number, set()).add((distance, scale))
        return values_by_call

    def _find_index(self, node: Node) -> int:
        return self._indices.get(node.call.op, len(self._calls.effect_order))

    def find_calls_after_ends(self) -> tuple[list[ComparedCall], set[tuple[float, float]]]:
        """Return the calls after the ends, and distance and scale of all values that differ before them."""
        last = max(self._ends)
        table = self._calls.table
        before = np.zeros(len(self._calls), bool)
        before[self._calls.effect_order[: last + 1]] = True
        lines = table.lines[table.differs & before[self._calls.call_numbers]]
        known_values = {*zip(lines["distance"].tolist(), lines["scale"].tolist())}
        return [self._calls[number] for number in self._calls.effect_order[last + 1 :]], known_values

    def find_largest_effect(self) -> tuple[float, str]:
        """Return the largest difference of an end, as a multiple of rounding, with its row; 0 for none.

        A gradient is measured relative to the largest gradient, because a gradient that is zero in theory is only
        rounding. The ends carry the coarsest rounding of the step.
        """
        noise = self._calls.noise
        ends = [self._get_call(end) for end in self._ends]
        largest = max((v.scale for op in ends if is_gradient(op.op) for v in op.values), default=0.0)
        distances = [
            (value.measure_multiple(max(value.scale, largest if is_gradient(op.op) else 0.0), noise), value.row)
            for op in ends
            for value in op.outputs()
            if value.state == ValueState.DIFFERS and value.is_float
        ]
        return max(distances, default=(0.0, ""))

    def _find_largest(self) -> float:
        """Return the largest difference of any value, as a multiple of rounding; 0 if none differs."""
        return float(self._calls.table.measure_multiples(0.0, 0.0).max(initial=0.0))

"""The differences of a rank that were reported, withdrawn or noted during its walk."""

from __future__ import annotations

from probe_diagnosis.difference.nodes import Node, RankHistory, can_show_gone
from probe_diagnosis.difference.rank_cursor import RankCursor
from probe_diagnosis.difference.reasons import CauseKind, DivergenceReason


class ReportedNodes:
    """The differences of a rank that were reported, withdrawn or noted during its walk.

    Args:
        cursor: The position of the rank.
        history: The history of the rank, which states if a difference was reported.

    Attributes:
        first: The reported differences.
        further: Further causes downstream of the reported differences, with equal inputs and different outputs.
        grown: The first call with values that differ by more than rounding explains.
        downstream: The calls with differing values downstream of the first reported call.
        vanished: Reported differences that the modules around them did not pass on.
    """

    def __init__(self, cursor: RankCursor, history: RankHistory) -> None:
        self._cursor = cursor
        self._calls = cursor.calls
        self._history = history
        self.first: list[Node] = []
        self.further: list[Node] = []
        self.grown: Node | None = None
        self.downstream: list[str] = []
        self.vanished: list[Node] = []
        self._withdrawing_modules: dict[str, str] = {}
        self._replaced: list[Node] = []
        self._multiple_before_report = 0.0
        self._multiple_at_entry: dict[str, float] = {}

    def create_node(self, number: int, reason: DivergenceReason) -> Node:
        """Return a call at the current position, with the reason for reporting it."""
        cursor = self._cursor
        return Node(cursor.rank, self._calls[number], reason, self._history.layer, cursor.calls_since_communication)

    def can_report(self, number: int) -> bool:
        """Return True if a call may be reported: the first one, or one within a module that was reported."""
        return not self._history.has_reported or self._is_inside_last_reported(number)

    def report_call(self, number: int, reason: DivergenceReason) -> None:
        """Report a call as the first difference, in place of a reported module around it.

        If the call receives an output of a call that does not line up, the latter is reported instead.
        """
        node = self.create_node(number, reason)
        source = self._find_source(reason) or self._pop_vanished(number, reason)
        if source is not None:
            node = source
            self.downstream.append(self._calls.keys[number])
        if not self._history.has_reported:
            self.first.append(node)
            self._history.has_reported = True
            self._multiple_before_report = self._history.largest_multiple
        elif self._is_inside_last_reported(number):
            self.first[-1] = node

    def add_further(self, number: int, reason: DivergenceReason) -> None:
        """Add a cause downstream of the reported differences."""
        self.further.append(self.create_node(number, reason))

    def add_replaced(self, number: int, reason: DivergenceReason) -> None:
        """Add an output of a call that does not line up, which is reported if another call receives the output."""
        self._replaced.append(self.create_node(number, reason))

    def note_growth(self, number: int, reason: DivergenceReason) -> None:
        """Note a call with values that differ by more than rounding explains, if it is the first such call."""
        if self.grown is None:
            self.grown = self.create_node(number, reason)

    def enter_modules(self, number: int) -> None:
        """Note the largest difference before the first call within each of the modules around a call."""
        for module in self._calls.modules[number]:
            self._multiple_at_entry.setdefault(module, self._history.largest_multiple)

    def get_multiple_at_entry(self, module: str) -> float:
        """Return the largest difference before the first call within a module, as a multiple of rounding."""
        return self._multiple_at_entry.get(module, 0.0)

    def withdraw_vanished(self, number: int) -> None:
        """Withdraw the differences that were reported within a module whose own outputs agree."""
        key, history = self._calls.keys[number], self._history
        is_grown_inside = self.grown is not None and key in self.grown.call.modules
        if not history.has_reported:
            if self.grown is not None and is_grown_inside and can_show_gone(self.grown):
                self.grown = None
                history.largest_multiple = self._multiple_at_entry.get(key, history.largest_multiple)
            return
        if not (self.first and key in self.first[-1].call.modules):
            return
        self._withdrawing_modules[self.first[-1].call.op] = key
        self.vanished.append(self.first.pop())
        self.further = [node for node in self.further if key not in node.call.modules]
        self.downstream.clear()
        if is_grown_inside:
            self.grown = None
        history.has_reported = False
        history.largest_multiple = self._multiple_before_report

    def _is_inside_last_reported(self, number: int) -> bool:
        """Return True for a call within the module that was reported last; some recorders write modules first."""
        return bool(self.first) and self.first[-1].call.op in self._calls.modules[number]

    def _find_source(self, reason: DivergenceReason) -> Node | None:
        """Return the call that does not line up and whose output the reported call receives; None if there is none."""
        if reason.cause is not CauseKind.RECEIVED:
            return None
        value = reason.value
        for node in reversed(self._replaced):
            returned = node.reason.value
            if (returned.distance, returned.scale, returned.evidence) == (value.distance, value.scale, value.evidence):
                return node
        return None

    def _pop_vanished(self, number: int, reason: DivergenceReason) -> Node | None:
        """Return the difference that a module around parameters whose gradients differ did not pass on, or None.

        The outputs of a module do not depend on all values on which the gradients of its parameters depend: a layer
        whose weights are zero passes nothing on.
        """
        if reason.cause is not CauseKind.GRADIENT:
            return None
        path = self._calls.keys[number].split(".")[1:-2]
        for node in self.vanished:
            module_path = self._withdrawing_modules[node.call.op].split(".")[1:-3]
            if path[: len(module_path)] == module_path:
                self.vanished.remove(node)
                return node
        return None

"""The position of a rank in its calls."""

from __future__ import annotations

from collections.abc import Iterator

from probe_diagnosis.collectives.calls import CommunicationCall
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.compared_calls import ComparedCall, ValueComparison
from probe_diagnosis.timeline.order import OPTIMIZER
from probe_diagnosis.timeline.value_table import IS_SCALAR, IS_SOURCE


class RankCursor:
    """The position of a rank in its calls. "The next call" is the call at this position.

    Args:
        rank: The number of the rank.
        calls: The calls of the rank.
        follows_backward: True if all calls follow the backward pass.

    Attributes:
        rank: The number of the rank.
        calls: The calls of the rank.
        order: The numbers of the calls in the order of their effects.
        index: Index of the next call in ``order``.
        calls_since_communication: Number of calls since the last communication call.
    """

    def __init__(self, rank: int, calls: CallColumns, *, follows_backward: bool = False) -> None:
        self.rank = rank
        self.calls = calls
        self.order = calls.effect_order
        self.index = 0
        self.calls_since_communication = 0
        backward_indices = (index for index, number in enumerate(self.order) if calls.is_backward[number])
        self._last_backward_index = max(backward_indices, default=-1 if follows_backward else len(self.order))
        self._counts: dict[object, int] = {}

    @property
    def is_at_end(self) -> bool:
        """True if the rank has passed all its calls."""
        return self.index >= len(self.order)

    @property
    def call(self) -> ComparedCall | None:
        """The next call; None at the end."""
        return None if self.is_at_end else self.calls[self.number]

    @property
    def number(self) -> int:
        """The number of the next call."""
        return self.order[self.index]

    def is_at_communication(self) -> bool:
        """Return True if the next call is a communication call."""
        return self.number in self.calls.communication

    def iterate_communication(self) -> Iterator[CommunicationCall]:
        """Yield the remaining communication calls, starting at the next call."""
        calls = self.calls.communication
        return (calls[number] for number in self.order[self.index :] if number in calls)

    def advance(self) -> None:
        """Go on to the next call."""
        self.index += 1
        self.calls_since_communication += 1

    def pass_communication(self) -> None:
        """Go on to the next call after a communication call."""
        self.index += 1
        self.calls_since_communication = 0

    def get_count(self, kind: object) -> int:
        """Return the number of collectives of a kind, an API in a group, that the rank has passed."""
        return self._counts.get(kind, 0)

    def add_count(self, kind: object) -> None:
        """Count a collective of a kind."""
        self._counts[kind] = self.get_count(kind) + 1

    def get_value(self, line: int) -> ValueComparison:
        """Return the value in a line of the table, which must belong to the next call."""
        return self.calls[self.number].values[line - self.calls.starts[self.number]]

    def receives_tensors(self) -> bool:
        """Return True if the next call has a tensor among its inputs."""
        lines = self.calls.get_lines(self.number)
        rows = self.calls.table.lines[lines.start : lines.stop]
        return bool((IS_SOURCE[rows["side"]] & (rows["flags"] & IS_SCALAR == 0)).any())

    def is_of_optimizer(self) -> bool:
        """Return True if the next call is after the backward pass, or within the step of an optimizer."""
        return self.index > self._last_backward_index or OPTIMIZER in self.calls.modules[self.number]

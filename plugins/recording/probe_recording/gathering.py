"""The gradients of one call, gathered from hooks on the nodes of its graph, whatever the framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

Arrived = Callable[[str, int, Any, bool], None]
"""Told of a gradient: side (``input`` or ``output``), position, the tensor or None, is it the last."""


class Gathering(ABC):
    """Adds up what the edges of one call carry, and tells when the gradient of an input is whole.

    Args:
        tell: Told of each gradient.
        inputs: The number of inputs that may have a gradient.
    """

    def __init__(self, tell: Arrived, inputs: int) -> None:
        self._tell = tell
        self._missing = [0] * inputs
        self._sums: dict[int, Any] = {}
        self._waiting = 0

    def output(self, position: int, same: int) -> Callable[[Any], None]:
        """Return what takes the gradient of an output.

        ``same`` is the number of the input that was returned as this output, or -1: their gradients are one.
        """
        self._waiting += 1 + (same >= 0)
        if same >= 0:
            self._missing[same] = -1

        def take(gradient: Any) -> None:
            self._told("input", position, gradient)
            if same >= 0:
                self._told("output", same, gradient)

        return take

    def inputs(self, places: Sequence[tuple[int, int]]) -> Callable[[tuple[Any, ...], Any], None]:
        """Return what takes the gradients that a node gives out.

        ``places`` are those that are shares of an input's: which of the node's, and the number of the input.
        """
        for _, place in places:
            if self._missing[place] < 0:
                continue
            if not self._missing[place]:
                self._waiting += 1
            self._missing[place] += 1

        def take(gradients: tuple[Any, ...], _: Any) -> None:
            for position, place in places:
                self._share(place, gradients[position] if position < len(gradients) else None)

        return take

    def ready(self) -> None:
        """Everything that is expected is known: tell of inputs that nothing leads to."""
        for place, missing in enumerate(self._missing):
            if not missing:
                self._tell("output", place, None, False)

    # -- what a framework says -------------------------------------------------------------

    @abstractmethod
    def _added(self, total: Any, gradient: Any) -> Any:
        """Return a sum in memory of its own, for the engine may write to a gradient after its hooks."""

    @abstractmethod
    def _whole(self, total: Any, gradient: Any) -> Any:
        """Return the gradient of an input: the sum of all shares but the last, and that; each may be None."""

    # -- when they arrive ------------------------------------------------------------------

    def _share(self, place: int, gradient: Any) -> None:
        if self._missing[place] <= 0:
            return  # a second pass over a graph that was retained
        self._missing[place] -= 1
        if self._missing[place]:
            if gradient is not None:
                self._sums[place] = self._added(self._sums.get(place), gradient)
            return
        self._missing[place] = -1
        self._waiting -= 1
        self._tell("output", place, self._whole(self._sums.pop(place, None), gradient), self._waiting <= 0)

    def _told(self, side: str, position: int, gradient: Any) -> None:
        self._waiting -= 1
        self._tell(side, position, gradient, self._waiting <= 0)

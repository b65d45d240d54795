"""The methods by which a framework completes the session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from probe_recording.values.leaves import Tree
from probe_recording.values.tensor_store import Store

if TYPE_CHECKING:
    from probe_recording.values.collector import Collector


import math

from probe_recording.values.leaves import Save, TensorLeaf


class FrameworkSession(ABC):
    """The recording of one step and rank, as a framework sees it: its plugin overrides the methods below.

    Attributes:
        framework: The name of the framework in the header of the run.
        suffix: The suffix of the names of tensor files.
        least_room: The smallest number of bytes that a tensor file should reserve for its header.
        collector: The converter of values into leaves.
    """

    framework = ""
    suffix = ".npy"
    least_room = 0
    collector: Collector

    @abstractmethod
    def quiet(self) -> AbstractContextManager[Any]:
        """Return a context inside which no computation is recorded."""

    @abstractmethod
    def will_have_gradient(self, value: Any) -> bool:
        """Return True if ``value`` is a tensor whose gradient will be computed."""

    def expect_gradient(self, tensor: Any, hook: Callable[[Any], None]) -> None:
        """Call ``hook`` with the gradient of a tensor when it arrives."""
        tensor.register_hook(hook)

    @abstractmethod
    def new_store(self) -> Store:
        """Return a new store for the tensors of this step; called when the first tensor is saved."""

    @abstractmethod
    def copy_of(self, tensor: Any) -> Any:
        """Return a copy of a tensor that may be overwritten."""

    def has_overflowed(self, fields: dict[str, Tree]) -> bool:
        """Return True if the record holds nan or an infinity."""
        return has_overflow(list(fields.values()))

    @property
    def is_waiting(self) -> bool:
        """True while statistics are still on a device."""
        return False

    def read_back(self) -> None:  # noqa: B027 - without devices there is nothing to fetch
        """Fetch the statistics that are still on a device."""


# -- the test for nan and infinities of the task overflow_check (docs/configuration.md#overflow) ----


def has_overflow(tree: Tree) -> bool:
    """Return True if the maximum or minimum of any leaf is nan or infinite."""
    if isinstance(tree, TensorLeaf):
        high, low = tree.statistics[:2]
        return not all(math.isfinite(value) for value in (high, low) if value is not None)
    if isinstance(tree, list):
        return any(has_overflow(item) for item in tree)
    if type(tree) is dict:
        return any(has_overflow(item) for item in tree.values())
    return False


# -- the search of the task overflow_check (docs/configuration.md#overflow) -------------------------


class OverflowSearch:
    """The search for records that overflowed: tensors are held until their record is complete and can be tested.

    Args:
        session: The session.
        store: The function that stores a tensor.
        left: The number of overflows to record until the search ends; negative for no end.

    Attributes:
        left: The same; it falls with each overflow.
        on_last: A function to call after the last overflow; None for none.
    """

    def __init__(self, session: FrameworkSession, store: Save, left: int) -> None:
        self.left = left
        self.on_last: Callable[[], None] | None = None
        self._session = session
        self._store = store
        self._held: dict[str, list[tuple[str, Any]]] = {}

    def hold(self, key: str, may_change: bool, name: str, tensor: Any) -> str:
        """Hold a tensor of a record in memory, and return the name of the file that it would be stored in.

        Args:
            key: The name of the record.
            may_change: True if the data may change before the record is complete.
            name: The name of the tensor.
            tensor: The tensor.
        """
        self._held.setdefault(key, []).append((name, self._session.copy_of(tensor) if may_change else tensor))
        return name + self._session.suffix

    def release(self, key: str) -> None:
        """Release the tensors of a record."""
        self._held.pop(key, None)

    def clear(self) -> None:
        """Release all tensors."""
        self._held.clear()

    def store_overflow(self, key: str, fields: dict[str, Tree]) -> bool:
        """Store the tensors of a complete record if it overflowed, else release them and return False."""
        tensors = self._held.pop(key, [])
        if not self._session.has_overflowed(fields) or self.left == 0:
            return False
        with self._session.quiet():
            for name, tensor in tensors:
                self._store(name, tensor)
        return True

    def count_down(self) -> None:
        """Count a record with an overflow; the last one ends the search."""
        self.left -= 1
        if self.left == 0 and self.on_last is not None:
            self.on_last()

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

from probe_recording.values.leaves import TensorLeaf


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

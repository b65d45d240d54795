"""The interface of the part of ConfigChecker that knows a framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from probe_recording.api import Process

MAX_DEPTH = 20
"""Largest depth of nested inputs that are looked into."""
MAX_TENSORS = 10_000
"""Largest number of tensors of the inputs."""

Hook = Callable[[Any, Any, Mapping[str, Any]], None]
StatisticValues = dict[str, float]


class FrameworkAdapter(ABC):
    """The part of ConfigChecker that knows a framework.

    Attributes:
        process: The process, with its rank.
    """

    process: Process

    @abstractmethod
    def patch_random_functions(self) -> None:
        """Replace the framework's random functions by those that record their calls."""

    @abstractmethod
    def check_model(self, model: Any) -> None:
        """Raise a UserError if a model is not one of the framework."""

    @abstractmethod
    def hook_forward(self, model: Any, callback: Hook) -> Any:
        """Call ``callback`` with the model and its arguments before each forward call; return a handle."""

    @abstractmethod
    def is_tensor(self, value: Any) -> bool:
        """Return True for a tensor."""

    @abstractmethod
    def measure(self, tensor: Any) -> StatisticValues | None:
        """Return max, min, mean and norm of a tensor; None if it has none."""

    @abstractmethod
    def measure_weights(self, model: Any) -> dict[str, StatisticValues]:
        """Return the statistics of all parameters, in float32."""

    def measure_inputs(self, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the statistics of the tensors in the arguments of a model, nested like these."""
        walk = _InputWalk(self)
        return {"args": walk.visit(args, 0), "kwargs": walk.visit(kwargs, 0)}


class _InputWalk:
    """A walk over nested inputs, bounded in depth and number."""

    def __init__(self, adapter: FrameworkAdapter) -> None:
        self._adapter = adapter
        self._count = 0

    def visit(self, value: Any, depth: int) -> Any:
        """Return the statistics in a value; an empty text for what is no tensor."""
        self._count += 1
        if depth > MAX_DEPTH or self._count > MAX_TENSORS:
            return ""
        if self._adapter.is_tensor(value):
            with suppress(Exception):  # a tensor without values, such as one of the device meta
                return self._adapter.measure(value) or ""
            return ""
        if isinstance(value, Mapping):
            return {str(key): self.visit(inner, depth + 1) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return {str(number): self.visit(inner, depth + 1) for number, inner in enumerate(value)}
        return ""

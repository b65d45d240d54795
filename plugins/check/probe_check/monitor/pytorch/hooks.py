"""Hooks on modules that do not reach copies of the modules, and the conditions under which they observe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True, slots=True)
class Observation:
    """The conditions under which hooks observe a training.

    Attributes:
        is_active: A function that returns True in steps that are observed.
        fail: A receiver of errors, which must not reach the training.
        micro_steps: Number of micro-batches of a step.
    """

    is_active: Callable[[], bool]
    fail: Callable[[Exception], None]
    micro_steps: int


class ModuleHook:
    """A hook that is left out of copies and pickles of its module."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> None:
        """Call the function."""
        self._function(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return _get_ignoring_hook, ()


def _get_ignoring_hook() -> Callable[..., None]:
    return ignore


def ignore(*_: Any) -> None:
    """Do nothing; stands for a hook in a copy of a module."""


class TrainingHooks:
    """Hooks on a training; subclasses install them."""

    def __init__(self) -> None:
        self._handles: list[Any] = []

    def _add_forward_hook(self, module: nn.Module, function: Callable[..., None], *, with_kwargs: bool = False) -> None:
        """Call a function after each forward pass of a module."""
        self._handles.append(module.register_forward_hook(ModuleHook(function), with_kwargs=with_kwargs))

    def end_step(self) -> None:
        """Forget what was counted in the step."""

    def remove(self) -> None:
        """Remove the hooks."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

"""A replacement of the method ``step`` of an optimizer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class StepWrapper:
    """A wrapper of the method ``step`` of an optimizer, which calls functions around each step.

    Args:
        optimizer: The optimizer.
        before: A function to call before each step.
        after: A function to call after each step that raises no exception.
    """

    def __init__(self, optimizer: Any, before: Callable[[], None] | None, after: Callable[[], None]) -> None:
        self._optimizer = optimizer
        self._is_removed = False
        self._replaced_attribute = getattr(optimizer, "__dict__", {}).get("step")
        original = optimizer.step

        @functools.wraps(original)
        def run_observed_step(*args: Any, **kwargs: Any) -> Any:
            if before is not None and not self._is_removed:
                before()
            result = original(*args, **kwargs)
            if not self._is_removed:
                after()
            return result

        self._wrapper = optimizer.step = run_observed_step

    def remove(self) -> None:
        """Restore the method, or call it without the functions if another wrapper replaced this one."""
        self._is_removed = True
        if self._optimizer.step is not self._wrapper:
            return
        if self._replaced_attribute is None:
            del self._optimizer.step
        else:
            self._optimizer.step = self._replaced_attribute

"""Wrappers of the method ``step`` of an optimizer."""

from __future__ import annotations

from typing import Any

from probe_check.monitor.pytorch.observer import StepWrapper


class Optimizer:
    """An optimizer that notes its steps."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def step(self, name: str = "step") -> str:
        """Return the name of the step."""
        self.events.append(name)
        return name


def wrap(optimizer: Any, number: int) -> StepWrapper:
    """Wrap an optimizer; the events before and after a step have a number."""
    events = optimizer.events
    return StepWrapper(optimizer, lambda: events.append(f"before {number}"), lambda: events.append(f"after {number}"))


def test_a_wrapper_calls_its_functions_around_a_step_and_keeps_the_signature() -> None:
    optimizer = Optimizer()
    wrap(optimizer, 1)
    assert optimizer.step("third") == "third"
    assert optimizer.events == ["before 1", "third", "after 1"]
    assert optimizer.step.__name__ == "step" and "name of the step" in (optimizer.step.__doc__ or "")


def test_a_removed_wrapper_restores_the_method() -> None:
    optimizer = Optimizer()
    wrap(optimizer, 1).remove()
    assert "step" not in vars(optimizer)
    assert optimizer.step() == "step" and optimizer.events == ["step"]


def test_a_removed_wrapper_restores_a_method_that_was_replaced_before() -> None:
    optimizer = Optimizer()
    optimizer.step = own = lambda name="own": name  # type: ignore[method-assign, assignment]
    first, second = wrap(optimizer, 1), wrap(optimizer, 2)
    second.remove()
    first.remove()
    assert optimizer.step is own


def test_a_wrapper_below_another_only_stops_to_call_its_functions() -> None:
    optimizer = Optimizer()
    first, _ = wrap(optimizer, 1), wrap(optimizer, 2)
    first.remove()
    assert optimizer.step() == "step"
    assert optimizer.events == ["before 2", "step", "after 2"]

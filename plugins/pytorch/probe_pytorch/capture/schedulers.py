"""The states of learning rate schedulers, which no optimizer knows."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from torch.optim import Optimizer, lr_scheduler

KINDS = (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau)


class Schedulers:
    """The schedulers of the program, found once for each optimizer among all objects."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Optimizer, list[weakref.ref[Any]]] = weakref.WeakKeyDictionary()

    def read_facts(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the numbers in the state of each scheduler of an optimizer, by names such as ``last_epoch``.

        Names begin with ``scheduler.`` and the number of the scheduler.
        """
        if optimizer not in self._known:
            self._known[optimizer] = [weakref.ref(candidate) for candidate in _find_schedulers(optimizer)]
        facts: dict[str, Any] = {}
        for number, reference in enumerate(self._known[optimizer]):
            scheduler = reference()
            if scheduler is None:
                continue
            facts[f"scheduler.{number}.class"] = type(scheduler).__name__
            facts |= {
                f"scheduler.{number}.{name.strip('_')}": value
                for name, value in vars(scheduler).items()
                if _is_numeric(value)
            }
        return facts


def _find_schedulers(optimizer: Optimizer) -> list[Any]:
    """Return the schedulers of an optimizer in the order of their classes."""
    schedulers = [
        candidate
        for candidate in gc.get_objects()
        if issubclass(type(candidate), KINDS) and vars(candidate).get("optimizer") is optimizer
    ]
    return sorted(schedulers, key=lambda candidate: type(candidate).__name__)


def _is_numeric(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= 100 and all(isinstance(item, (int, float)) for item in value)
    return isinstance(value, (int, float))

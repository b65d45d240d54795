"""``enable_dataloader``: a step is what happens between two batches of a DataLoader (spec/dump 1.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader


class BatchSteps:
    """Has a step ended and begun whenever a batch is fetched, in this process only.

    Args:
        ended: Called before a batch is fetched, unless it is the first.
        began: Called once it is there.
    """

    def __init__(self, ended: Callable[[], None], began: Callable[[], None]) -> None:
        self._ended = ended
        self._began = began
        self._original: Any = None
        self._any = False

    def install(self) -> None:
        """Watch all DataLoaders that are iterated from now on."""
        if self._original is not None:
            return
        original = self._original = DataLoader.__iter__
        watch = self._watch

        def watched(loader: DataLoader[Any]) -> Any:
            return watch(original(loader))

        DataLoader.__iter__ = watched  # type: ignore[method-assign]

    def remove(self) -> None:
        """Watch no longer."""
        if self._original is not None:
            DataLoader.__iter__ = self._original  # type: ignore[method-assign]
            self._original = None

    def _watch(self, batches: Any) -> Any:
        while True:
            if self._original is not None and self._any:
                self._ended()
            try:
                batch = next(batches)
            except StopIteration:
                return
            if self._original is not None:
                self._any = True
                self._began()
            yield batch

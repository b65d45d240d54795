"""Steps counted by batches of a DataLoader (``enable_dataloader``, docs/configuration.md#config-json)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader


class BatchSteps:
    """A watcher of DataLoaders that ends a step and begins the next whenever a batch is fetched.

    Args:
        ended: A callback before each batch but the first is fetched.
        began: A callback after a batch was fetched.
    """

    def __init__(self, ended: Callable[[], None], began: Callable[[], None]) -> None:
        self._ended = ended
        self._began = began
        self._original: Any = None
        self._any = False

    def install(self) -> None:
        """Watch all DataLoaders of this process whose iteration begins from now on."""
        if self._original is not None:
            return
        original = self._original = DataLoader.__iter__
        watch = self._watch

        def iterate_batches(loader: DataLoader[Any]) -> Any:
            return watch(original(loader))

        DataLoader.__iter__ = iterate_batches  # type: ignore[method-assign]

    def remove(self) -> None:
        """Stop watching."""
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

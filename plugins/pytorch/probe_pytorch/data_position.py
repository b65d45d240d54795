"""The position of a program in its training data, as torch's data loaders show it."""

from __future__ import annotations

import weakref
from collections import Counter
from functools import wraps
from typing import Any

from probe_recording.step_facts.conditions import Fact
from torch.utils.data.dataloader import _BaseDataLoaderIter


class DataPosition:
    """A watcher of the batches that data loaders return."""

    def __init__(self) -> None:
        self._last: weakref.ref[Any] | None = None
        self._epochs: Counter[int] = Counter()
        self._patched: tuple[Any, Any] | None = None

    def watch(self) -> None:
        """Watch all data loaders of this process from now on."""
        if self._patched is not None:
            return
        original: Any = _BaseDataLoaderIter.__next__
        reference = weakref.ref(self)

        @wraps(original)
        def fetch_next(iterator: Any) -> Any:
            batch = original(iterator)
            position = reference()
            if position is not None:
                position._note(iterator)
            return batch

        _BaseDataLoaderIter.__next__ = fetch_next  # type: ignore[assignment, method-assign]
        self._patched = fetch_next, original

    def remove(self) -> None:
        """Stop watching."""
        if self._patched is not None and _BaseDataLoaderIter.__next__ is self._patched[0]:
            _BaseDataLoaderIter.__next__ = self._patched[1]  # type: ignore[method-assign]
        self._patched = None

    def read_facts(self) -> dict[str, Fact]:
        """Return the epoch and the number of the last batch in it, both from 0; empty if there is none."""
        iterator = self._last() if self._last is not None else None
        number = getattr(iterator, "_num_yielded", 0)
        if not number:
            return {}
        return {"epoch": self._epochs[id(iterator._dataset)] - 1, "batch": number - 1}  # type: ignore[union-attr]

    def _note(self, iterator: Any) -> None:
        if getattr(iterator, "_num_yielded", 0) == 1:
            self._epochs[id(iterator._dataset)] += 1
        self._last = weakref.ref(iterator)

"""The state of each recorded thread: surrounding calls and running modules."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


class Threads(threading.local):
    """The state of a thread.

    Attributes:
        inside: The number of recorded calls around this point; only the outermost call is recorded.
        modules: The names of the modules whose forward is running, outermost first.
        running: The same modules as objects of the capture of modules.
    """

    def __init__(self) -> None:
        self.inside = 0
        self.modules: list[str] = []
        self.running: list[Any] = []

    def suspend(self) -> AbstractContextManager[None]:
        """Return a context in which no call of this thread is recorded."""
        return _Suspension(self)

    def outermost(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` wrapped so that no call inside it is recorded."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.inside += 1
            try:
                return function(*args, **kwargs)
            finally:
                self.inside -= 1

        return call


class _Suspension(AbstractContextManager[None]):
    """A context that counts as a recorded call, so that calls inside it are not recorded."""

    __slots__ = ("_threads",)

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    def __enter__(self) -> None:
        self._threads.inside += 1

    def __exit__(self, *_: object) -> None:
        self._threads.inside -= 1

"""The state of each recorded thread: surrounding calls and running modules."""

from __future__ import annotations

import threading
from collections.abc import Callable
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

    def outermost(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` wrapped so that no call inside it is recorded."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.inside += 1
            try:
                return function(*args, **kwargs)
            finally:
                self.inside -= 1

        return call

"""What each thread is doing while it is recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Threads(threading.local):
    """What a thread is doing.

    Attributes:
        inside: How many recorded calls surround this point; only the outermost is recorded.
        modules: The names of the modules whose forward runs, outermost first.
        running: The same, as the capture of modules keeps them.
    """

    def __init__(self) -> None:
        self.inside = 0
        self.modules: list[str] = []
        self.running: list[Any] = []

    def outermost(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, with nothing recorded inside it."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.inside += 1
            try:
                return function(*args, **kwargs)
            finally:
                self.inside -= 1

        return call

"""Signals deferred while files are written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer Ctrl-C, and the script's own handler of SIGTERM, until the block is left.

    Python runs handlers in the main thread only; in other threads, and for signals without a handler, nothing
    changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: dict[signal.Signals, FrameType | None] = {}

    def wait(number: int, frame: FrameType | None) -> None:
        came[signal.Signals(number)] = frame

    before: dict[signal.Signals, Any] = {}
    try:
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                with suppress(ValueError):  # not the main interpreter
                    before[number] = handler
                    signal.signal(number, wait)
        yield
    finally:
        for number, handler in before.items():
            with suppress(ValueError):
                signal.signal(number, handler)
        for number, frame in came.items():
            before[number](number, frame)

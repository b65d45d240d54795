"""Signals that wait until files are written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

INTERRUPT_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C, and SIGTERM if the script handles it, until the block ends.

    Nothing is deferred in other threads than the main one, the only one in which Python runs handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: dict[signal.Signals, FrameType | None] = {}

    def remember(number: int, frame: FrameType | None) -> None:
        received[signal.Signals(number)] = frame

    replaced: dict[signal.Signals, Any] = {}
    try:
        for number in INTERRUPT_SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                with suppress(ValueError):  # not the main interpreter
                    replaced[number] = handler
                    signal.signal(number, remember)
        yield
    finally:
        for number, handler in replaced.items():
            with suppress(ValueError):
                signal.signal(number, handler)
        for number, frame in received.items():
            replaced[number](number, frame)

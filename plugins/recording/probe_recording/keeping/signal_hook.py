"""A handler of one signal that calls the handler of the program as well."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

IGNORED_BY_DEFAULT = frozenset({"SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH"})
REQUEST_SIGNALS = frozenset({"SIGUSR1", "SIGUSR2"})
"""Signals that a program without a handler of its own survives while it is watched."""


class SignalHook:
    """A handler that is called before that of the program.

    Args:
        number: The signal.
        receive: A function to call when it arrives. It returns False if the program's own handler has to wait
            until ``resume``.
    """

    def __init__(self, number: signal.Signals, receive: Callable[[], bool]) -> None:
        self._number = number
        self._receive = receive
        self._process = os.getpid()
        self._handler: Any = self._handle
        self._previous: Any = None
        self._waiting: FrameType | None = None
        self._is_waiting = False

    def install(self) -> None:
        """Place the handler, also above one that the program has set since; call this in each step.

        Nothing is done in other threads than the main one, in which Python has no handlers.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        with suppress(ValueError):  # not the main interpreter
            current = signal.getsignal(self._number)
            if current is not self._handler:
                self._previous = current
                signal.signal(self._number, self._handler)

    def remove(self) -> None:
        """Restore the program's handler."""
        if threading.current_thread() is not threading.main_thread():
            return
        with suppress(ValueError):
            if signal.getsignal(self._number) is self._handler:
                signal.signal(self._number, self._previous or signal.SIG_DFL)

    def resume(self) -> None:
        """Call the program's handler if it waits."""
        if self._is_waiting:
            self._is_waiting = False
            frame, self._waiting = self._waiting, None
            self._pass_on(frame)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._process and not self._receive():
            self._waiting, self._is_waiting = frame, True
            return
        self._pass_on(frame)

    def _pass_on(self, frame: FrameType | None) -> None:
        previous, name = self._previous, self._number.name
        if callable(previous):
            previous(self._number, frame)
        elif previous is signal.SIG_DFL and name not in IGNORED_BY_DEFAULT | REQUEST_SIGNALS:
            signal.signal(self._number, signal.SIG_DFL)
            os.kill(os.getpid(), self._number)

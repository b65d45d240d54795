"""Level L1: the capture of the calls of functions, methods and primitives."""

from __future__ import annotations

from typing import Any

from probe_recording.api import Capture
from probe_recording.capture.threads import Threads

from probe_mindspore import compat
from probe_mindspore.capture.call_recorder import MindSporeCallRecorder
from probe_mindspore.capture.cells import list_all_cells
from probe_mindspore.capture.draws import DrawWatch
from probe_mindspore.capture.function_wrappers import FunctionWrappers
from probe_mindspore.session import MindSporeSession


class CallCapture(Capture[MindSporeSession]):
    """The capture of API calls, at levels L1 and mix; at others it notes which primitives draw random numbers.

    Args:
        functions: The wrappers of functions.
        threads: The state of the threads.
        draws: The watcher of the random numbers that calls draw.
    """

    def __init__(self, functions: FunctionWrappers, threads: Threads, draws: DrawWatch) -> None:
        self._functions = functions
        self._threads = threads
        self._draws = draws
        self._calls: MindSporeCallRecorder | None = None

    def install(self, session: MindSporeSession, model: Any) -> None:
        """Wrap the functions, and record their calls into a session."""
        if session.config.apis:
            if model is not None:
                self._functions.set_primitives(list_all_cells(model))
            self._calls = self._functions.recorder = MindSporeCallRecorder(session, self._threads, self._draws)
            self._functions.install()
        elif session.conditions is not None:
            self._functions.install_primitives()

    def pause(self) -> None:
        """Record no call."""
        self._functions.recorder = None

    def resume(self) -> None:
        """Record calls again."""
        self._functions.recorder = self._calls

    def remove(self) -> None:
        """Remove the wrappers."""
        self._calls = self._functions.recorder = None
        self._functions.remove()


# -- ``jit`` functions, which run uncompiled while they are recorded --------------------------------


class EagerCode(Capture[MindSporeSession]):
    """The part of a recorder that runs ``jit`` functions uncompiled and notes this in the header of the step.

    Args:
        switch: The switch that makes these functions run uncompiled.
    """

    def __init__(self, switch: compat.EagerSwitch) -> None:
        self._switch = switch

    def install(self, session: MindSporeSession, model: Any) -> None:
        """Run ``jit`` functions uncompiled."""
        self._switch.install()

    def pause(self) -> None:
        """Run ``jit`` functions uncompiled while a single module is recorded, also without ``start``."""
        self._switch.install()

    def remove(self) -> None:
        """Run ``jit`` functions as before."""
        self._switch.remove()

    def complete(self, session: MindSporeSession) -> None:
        """Note how compiled code was recorded."""
        session.note("compile", "eager")

"""The recorder of the debugger, composed of the captures of its level."""

from __future__ import annotations

from typing import Any

import mindspore
from probe_recording.api import Config, ModuleCapture, Recorder
from probe_recording.framework import StepDirectory

from probe_mindspore import compat
from probe_mindspore.capture.call_capture import CallCapture, EagerCode
from probe_mindspore.capture.cells import CellHooks, list_cells
from probe_mindspore.capture.conditions import MindSporeConditions
from probe_mindspore.capture.draws import DrawWatch
from probe_mindspore.capture.function_wrappers import FunctionWrappers, Patch
from probe_mindspore.session import MindSporeProcess, MindSporeSendingSession, MindSporeSession


class MindSporeRecorder(MindSporeProcess, Recorder[MindSporeSession]):
    """A recorder of a MindSpore process.

    Args:
        config: The settings of the recording.

    Attributes:
        session_class: The class of sessions that write files.
    """

    framework = "mindspore"
    session_class: type[MindSporeSession] = MindSporeSession
    _conditions: MindSporeConditions

    def __init__(self, config: Config) -> None:
        self._draws = DrawWatch()
        super().__init__(config)
        self._functions = FunctionWrappers(self._threads, self._draws)
        self._eager = compat.EagerSwitch(self._functions.suspend)
        self.captures += [
            EagerCode(self._eager),
            ModuleCapture(self.new_modules(), list_cells),
            CallCapture(self._functions, self._threads, self._draws),
        ]

    def _can_record(self) -> bool:
        """Return True if this program can be recorded, and print a notice about calls that are not recorded."""
        if compat.is_compiled_mode():
            self._notices.print_once(
                "probe: nothing is recorded in GRAPH_MODE; before start(), call "
                "mindspore.set_context(mode=mindspore.PYNATIVE_MODE)."
            )
            return False
        if not compat.has_nodes():
            self._notices.print_once(
                "probe: this version of MindSpore does not show the gradients of calls, so backward calls "
                "are not recorded; to record them, install MindSpore 2.10: pip install mindspore==2.10.0"
            )
        return True

    # -- sessions --------------------------------------------------------------------------

    @property
    def versions(self) -> dict[str, str]:
        """The version of MindSpore."""
        return {"mindspore": mindspore.__version__}

    def new_session(self, directory: StepDirectory, displayed_path: str) -> MindSporeSession:
        """Return a session that records a step of MindSpore."""
        session_class = self.session_class if self.config.online is None else MindSporeSendingSession
        return session_class(self.config, directory, displayed_path, self._threads)

    def new_conditions(self) -> MindSporeConditions:
        """Return a new capture of the conditions of steps."""
        return MindSporeConditions(self._draws)

    # -- functions of the user --------------------------------------------------------------

    def register(self, holder: Any, attribute: str, name: str) -> None:
        """Record calls of ``holder.attribute`` under ``name``."""
        self._functions.add(Patch(holder, attribute, name))

    def restore(self, holder: Any, attribute: str) -> bool:
        """Stop recording calls of ``holder.attribute``; return False if they were not recorded."""
        return self._functions.drop(holder, attribute)

    # -- single Cells ----------------------------------------------------------------------------

    def new_modules(self) -> CellHooks:
        """Return new hooks of Cells."""
        return CellHooks(self._threads, self._draws)

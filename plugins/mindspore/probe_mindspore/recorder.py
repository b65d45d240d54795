"""Recorder behind the debugger: installs and removes the captures of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import mindspore
import probe_recording
from mindspore import nn
from probe_recording import Config, StepDirectory

from probe_mindspore import compat
from probe_mindspore.capture.calls import Calls
from probe_mindspore.capture.cells import Cells, list_cells
from probe_mindspore.capture.conditions import MindSporeConditions
from probe_mindspore.capture.draws import DrawWatch
from probe_mindspore.capture.functions import Functions, Patch
from probe_mindspore.capture.phases import PhaseCapture
from probe_mindspore.process import MindSporeProcess
from probe_mindspore.session import SendingSession, Session

Models = Union[nn.Cell, Sequence[nn.Cell], None]


class Recorder(MindSporeProcess, probe_recording.Recorder[Session]):
    """Recorder that turns start, stop and step into sessions, and switches the captures on and off.

    Args:
        config: The configuration.

    Attributes:
        session_kind: The class of sessions that write files.
    """

    session_kind: type[Session] = Session
    _conditions: MindSporeConditions
    _phases: PhaseCapture | None = None

    def __init__(self, config: Config) -> None:
        self._draws = DrawWatch()
        super().__init__(config)
        self._functions = Functions(self._threads, self._draws)
        self._eager = compat.Eager(self._functions.remove_wrappers)

    # -- the life of a step ----------------------------------------------------------------

    def _can_record(self) -> bool:
        """Return False if this program cannot be recorded, and warn about all that is not recorded."""
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

    def _see(self, session: Session, model: Models) -> None:
        """Install the captures of this level."""
        self._eager.install()
        if model is not None:
            self._conditions.watch(_list_roots(model))
        if self.config.modules and model is not None:
            self._modules.begin_step(session)
            self._modules.install(
                list_cells(model), "backward" in self.config.directions and self.config.parameter_gradients
            )
        if self.config.apis:
            if model is not None:
                self._functions.know([("", root) for root in _list_roots(model)] + list_cells(model))
            self._functions.calls = Calls(session, self._threads, self._draws)
            self._functions.install()
        elif session.conditions is not None:
            self._functions.install_primitives()
        if self._phases is not None:
            self._phases.begin(session, [] if model is None else _list_roots(model))

    def _add_stop_facts(self, session: Session) -> None:
        session.note("compile", "eager")

    def _blind(self) -> None:
        super()._blind()
        if self._phases is not None:
            self._phases.remove()
        self._conditions.unwatch()
        self._modules.remove()
        self._functions.calls = None
        self._functions.remove()
        self._eager.remove()

    # -- sessions --------------------------------------------------------------------------

    @property
    def versions(self) -> dict[str, str]:
        """The version of MindSpore."""
        return {"mindspore": mindspore.__version__}

    def new_session(self, directory: StepDirectory, shown: str) -> Session:
        """Return a session that records a step of MindSpore."""
        kind = self.session_kind if self.config.online is None else SendingSession
        return kind(self.config, directory, shown, self._threads)

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

    def new_modules(self) -> Cells:
        """Return a capture of Cells."""
        return Cells(self._threads, self._draws)

    def _pause_calls(self) -> None:
        self._eager.install()
        self._functions.calls = None

    def _resume_calls(self) -> None:
        if self._functions.is_there and self._session is not None:
            self._functions.calls = Calls(self._session, self._threads, self._draws)


def _list_roots(model: Any) -> list[nn.Cell]:
    """Return the Cells that ``start`` was given."""
    return [model] if isinstance(model, nn.Cell) else list(model)

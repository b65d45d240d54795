"""The recorder behind the debugger: which captures are at work in a step of a rank."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Union

import probe_recording
from mindspore import communication, nn
from probe_recording import SINGLE, Config, StepDirectory, interrupts_deferred

from probe_mindspore import compat
from probe_mindspore.capture.calls import Calls
from probe_mindspore.capture.cells import Cells, named_cells
from probe_mindspore.capture.functions import Functions, Patch
from probe_mindspore.session import Session

Models = Union[nn.Cell, Sequence[nn.Cell], None]


class Recorder(probe_recording.Recorder[Session]):
    """Turns start, stop and step into sessions, and lets the captures see and go blind."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._functions = Functions(self._threads)
        self._eager = compat.Eager(self._functions.blind)

    # -- the life of a step ----------------------------------------------------------------

    def _can_record(self) -> bool:
        if compat.is_compiled_mode():
            self._tell("probe: GRAPH_MODE is not recorded; use mindspore.set_context(mode=PYNATIVE_MODE).")
            return False
        if not compat.has_nodes():
            self._tell("probe: this MindSpore is too old for gradients of calls; upgrade to 2.10 for them.")
        return True

    def _see(self, session: Session, model: Models) -> None:
        """Let the captures of this level see."""
        self._eager.install()
        if self.config.modules and model is not None:
            self._modules.begin_step(session)
            self._modules.install(
                named_cells(model), "backward" in self.config.directions and self.config.parameter_gradients
            )
        if self.config.apis:
            if model is not None:
                self._functions.know([("", root) for root in _roots(model)] + named_cells(model))
            self._functions.calls = Calls(session, self._threads)
            self._functions.install()

    @interrupts_deferred()
    def stop(self) -> None:
        """Cease to record and write."""
        if not self._running:
            return
        self._blind()
        session = self._session
        if session is not None:
            session.active = False
            session.note("compile", "eager")
            session.flush(although_empty=True)

    def _blind(self) -> None:
        self._running = False
        self._end_module_dump()
        self._forget_tokens()
        self._modules.remove()
        self._functions.calls = None
        self._functions.remove()
        self._eager.remove()

    # -- sessions --------------------------------------------------------------------------

    def new_session(self, directory: StepDirectory, shown: str) -> Session:
        """A session of this framework."""
        return Session(self.config, directory, shown, self._threads)

    def _label(self) -> str:
        if communication.GlobalComm.INITED:
            return f"rank{communication.get_rank()}"
        rank, size = (os.environ.get(name, "") for name in ("RANK_ID", "RANK_SIZE"))
        if rank.isdigit() and size.isdigit() and int(size) > 1:
            return f"rank{rank}"  # launched as one of several that have not met yet
        return SINGLE

    def _size(self) -> int:
        if communication.GlobalComm.INITED:
            return int(communication.get_group_size())
        size = os.environ.get("RANK_SIZE", "")
        return int(size) if size.isdigit() else 1

    # -- functions of the user's -------------------------------------------------------------

    def register(self, holder: Any, attribute: str, name: str) -> None:
        """Record calls of ``holder.attribute``."""
        self._functions.add(Patch(holder, attribute, name))

    def restore(self, holder: Any, attribute: str) -> bool:
        """Record them no longer; False where they were not recorded."""
        return self._functions.drop(holder, attribute)

    # -- single Cells ----------------------------------------------------------------------------

    def new_modules(self) -> Cells:
        """A capture of Cells."""
        return Cells(self._threads)

    def _pause_calls(self) -> None:
        self._eager.install()
        self._functions.calls = None

    def _resume_calls(self) -> None:
        if self._functions.is_there and self._session is not None:
            self._functions.calls = Calls(self._session, self._threads)


def _roots(model: Any) -> list[nn.Cell]:
    return [model] if isinstance(model, nn.Cell) else list(model)

"""The recorder behind the debugger: which captures are at work in a step of a rank."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any, Union

from mindspore import communication, nn

from probe_core.recording import recorder
from probe_core.recording.config import Config
from probe_core.recording.directory import StepDirectory
from probe_core.recording.recorder import SINGLE
from probe_mindspore import compat
from probe_mindspore.capture.calls import Calls
from probe_mindspore.capture.cells import Cells, named_cells
from probe_mindspore.capture.functions import Functions, Patch
from probe_mindspore.session import Session
from probe_mindspore.variables import save_variable

Models = Union[nn.Cell, Sequence[nn.Cell], None]


class Recorder(recorder.Recorder[Session]):
    """Turns start, stop and step into sessions, and lets the captures see and go blind."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._functions = Functions(self._threads)
        self._cells = Cells(self._threads)
        self._single: Cells | None = None
        self._eager = compat.Eager(self._functions.blind)
        self._token_handles: list[Any] = []

    # -- the life of a step ----------------------------------------------------------------

    def start(self, model: Models, token_range: tuple[int, int] | None) -> None:
        """Begin to record; again, if it had begun, with the model that is given now."""
        if self._finished or self._searched or not self._selected() or not self._enabled():
            return
        if self.config.level == "debug":
            return
        if compat.is_compiled_mode():
            self._tell("probe: GRAPH_MODE is not recorded; use mindspore.set_context(mode=PYNATIVE_MODE).")
            return
        if not compat.has_nodes():
            self._tell("probe: this MindSpore is too old for gradients of calls; upgrade to 2.10 for them.")
        session = self._open_session()
        try:
            self._see(session, model)
        except BaseException:
            self._blind()  # nothing of a start that failed stays
            raise
        session.active = True
        self._running = True
        if token_range is not None and model is not None:
            self._count_tokens(session, model, token_range)

    def _see(self, session: Session, model: Models) -> None:
        """Let the captures of this level see."""
        self._eager.install()
        if self.config.modules and model is not None:
            self._cells.begin_step(session)
            self._cells.install(
                named_cells(model), "backward" in self.config.directions and self.config.parameter_gradients
            )
        if self.config.apis:
            if model is not None:
                self._functions.know([("", root) for root in _roots(model)] + named_cells(model))
            self._functions.calls = Calls(session, self._threads)
            self._functions.install()

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
        for handle in self._token_handles:
            handle.remove()
        self._token_handles.clear()
        self._cells.remove()
        self._functions.calls = None
        self._functions.remove()
        self._eager.remove()

    def _count_tokens(self, session: Session, model: Any, tokens: tuple[int, int]) -> None:
        """Record only while the model's own forwards are within ``tokens``, counted from 0 at start."""
        count = itertools.count()
        session.active = False

        def before(*_: Any) -> None:
            session.active = tokens[0] <= next(count) <= tokens[1]

        self._token_handles.append(_roots(model)[0].register_forward_pre_hook(before))

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

    # -- functions of the user's -------------------------------------------------------------

    def register(self, holder: Any, attribute: str, name: str) -> None:
        """Record calls of ``holder.attribute``."""
        self._functions.add(Patch(holder, attribute, name))

    def restore(self, holder: Any, attribute: str) -> bool:
        """Record them no longer; False where they were not recorded."""
        return self._functions.drop(holder, attribute)

    # -- single values and modules -----------------------------------------------------------

    def save(self, variable: Any, name: str, backward: bool) -> None:
        """Record a variable at level debug."""
        if self.config.level != "debug" or self._finished or not self._selected() or not self._enabled():
            return
        session = self._open_session()
        session.active = True
        save_variable(session, variable, name, backward)

    def module_dump(self, cell: nn.Cell, name: str) -> None:
        """Record one Cell and nothing else."""
        if self._finished or not self._selected() or not self._enabled():
            return
        self._end_module_dump()
        session = self._open_session()
        session.active = self._running = True
        self._eager.install()
        self._functions.calls = None
        self._cells.paused = True
        self._single = Cells(self._threads)
        self._single.begin_step(session)
        self._single.install([(f"{name}.{type(cell).__name__}", cell)], gradients=False)

    def module_dump_end(self) -> None:
        """Record as before."""
        if self._single is None:
            return
        self._end_module_dump()
        if self._session is not None:
            self._session.flush()

    def _end_module_dump(self) -> None:
        """The single Cell is let go, and what was seen before is seen again."""
        if self._single is None:
            return
        self._single.remove()
        self._single = None
        self._cells.paused = False
        if self._functions.is_there and self._session is not None:
            self._functions.calls = Calls(self._session, self._threads)


def _roots(model: Any) -> list[nn.Cell]:
    return [model] if isinstance(model, nn.Cell) else list(model)

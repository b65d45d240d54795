"""Compiled code, which runs uncompiled while it is recorded (``"compile": "eager"``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probe_recording.api import Capture
from probe_recording.messages import Notices
from torch import nn

from probe_pytorch import compat
from probe_pytorch.capture.modules import list_models
from probe_pytorch.session import TorchSession


class EagerSwitch:
    """A switch that makes compiled code run uncompiled."""

    def __init__(self) -> None:
        self._restore: Callable[[], None] | None = None

    def turn_on(self) -> None:
        """Run compiled code uncompiled from now on, if the program may have any."""
        if self._restore is None and compat.may_have_compiled():
            self._restore = compat.force_eager()

    def turn_off(self) -> None:
        """Run compiled code as before."""
        restore, self._restore = self._restore, None
        if restore is not None:
            restore()


class EagerCode(Capture[TorchSession]):
    """The part of a recorder that runs compiled code uncompiled and notes this in the header of the step.

    Args:
        notices: The messages of the recorder.
        period: The time during which the code runs uncompiled, for the message about it.
    """

    def __init__(self, notices: Notices, period: str) -> None:
        self._notices = notices
        self._period = period
        self._switch = EagerSwitch()

    def install(self, session: TorchSession, model: Any) -> None:
        """Run compiled code uncompiled, unless the configuration records it as it is."""
        if session.config.compile == "eager":
            self._switch.turn_on()
            for root in list_models(model):
                self.report_compiled(root)

    def remove(self) -> None:
        """Run compiled code as before."""
        self._switch.turn_off()

    def complete(self, session: TorchSession) -> None:
        """Note how compiled code was recorded."""
        if compat.may_have_compiled():
            session.note("compile", session.config.compile)

    def report_compiled(self, model: nn.Module) -> None:
        """Print once that a compiled model runs uncompiled, and the consequences."""
        if any(map(compat.is_compiled, model.modules())):
            self._notices.print_once(
                f"probe: the model is compiled by torch.compile, but runs uncompiled {self._period}. "
                "Its results differ from those of the compiled model by rounding, and dropout draws other random "
                "numbers from here on. To record the compiled model, call start(model=model) with "
                '"compile": "tap" and level L0.'
            )

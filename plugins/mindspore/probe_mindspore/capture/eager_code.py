"""``jit`` functions, which run uncompiled while they are recorded."""

from __future__ import annotations

from typing import Any

from probe_recording.api import Capture

from probe_mindspore import compat
from probe_mindspore.session import MindSporeSession


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

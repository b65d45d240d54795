"""Recorders of plugins that override ``_see`` and ``_blind``, the interface before captures (until 0.3)."""

from __future__ import annotations

import warnings
from typing import Any

from probe_recording.capture.captures import Capture
from probe_recording.sessions.session import Session


class FormerHooks(Capture[Session]):
    """A capture that calls the former methods of a recorder.

    Args:
        recorder: The recorder, which defines ``_see`` and may define ``_blind``.
    """

    def __init__(self, recorder: Any) -> None:
        warnings.warn(
            f"{type(recorder).__name__} overrides _see and _blind; append a Capture (probe_recording.api) instead.",
            DeprecationWarning,
            stacklevel=4,
        )
        self._recorder = recorder
        recorder._modules = recorder.new_modules()

    def install(self, session: Session, model: Any) -> None:
        """Call ``_see``."""
        self._recorder._see(session, model)

    def remove(self) -> None:
        """Call ``_blind``."""
        self._recorder._blind()

    def pause(self) -> None:
        """Pause the hooks of modules."""
        self._recorder._modules.paused = True

    def resume(self) -> None:
        """Resume the hooks of modules."""
        self._recorder._modules.paused = False

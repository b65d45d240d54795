"""The recorder that keeps the last steps of a MindSpore program."""

from __future__ import annotations

import probe_recording
from probe_recording import Config, KeepOptions

from probe_mindspore.capture.phases import PhaseCapture
from probe_mindspore.recorder import Recorder
from probe_mindspore.session import Session


class MemorySession(probe_recording.MemorySession, Session):
    """A session whose files stay in memory."""


class KeepingRecorder(probe_recording.KeepingRecorder[Session], Recorder):
    """A recorder that keeps the last steps of a MindSpore process in memory.

    Args:
        config: The settings of the recording.
        options: The settings of keeping.
    """

    session_kind = MemorySession

    def __init__(self, config: Config, options: KeepOptions) -> None:
        super().__init__(config)
        self.captures.append(PhaseCapture(self._eager.compiled))
        self.keep(options)

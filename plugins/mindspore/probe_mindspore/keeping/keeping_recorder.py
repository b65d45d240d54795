"""The recorder that keeps the last steps of a MindSpore program."""

from __future__ import annotations

from probe_recording.api import Config
from probe_recording.keeping.keeping_recorder import KeepingRecorder, MemorySession
from probe_recording.keeping.options import KeepOptions

from probe_mindspore.capture.phases import PhaseCapture
from probe_mindspore.recorder import MindSporeRecorder
from probe_mindspore.session import MindSporeSession


class MindSporeMemorySession(MemorySession, MindSporeSession):
    """A session whose files stay in memory."""


class MindSporeKeepingRecorder(KeepingRecorder[MindSporeSession], MindSporeRecorder):
    """A recorder that keeps the last steps of a MindSpore process in memory.

    Args:
        config: The settings of the recording.
        options: The settings of keeping.
    """

    session_class = MindSporeMemorySession

    def __init__(self, config: Config, options: KeepOptions) -> None:
        super().__init__(config)
        self.captures.append(PhaseCapture(self._eager.suspend))
        self.keep(options)

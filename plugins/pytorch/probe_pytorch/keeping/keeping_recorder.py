"""The recorder that keeps the last steps of a PyTorch program, and the driver of unchanged scripts."""

from __future__ import annotations

from typing import Any

import torch
from probe_recording.api import Config
from probe_recording.interrupts import defer_interrupts
from probe_recording.keeping.event import Cause
from probe_recording.keeping.keeping_recorder import KeepingRecorder, MemorySession
from probe_recording.keeping.options import KeepOptions

from probe_pytorch.follower import Follower
from probe_pytorch.recorder import TorchRecorder
from probe_pytorch.script import ScriptEnd
from probe_pytorch.session import TorchSession


class TorchMemorySession(MemorySession, TorchSession):
    """A session whose files stay in memory: the methods of ``MemorySession`` override those of ``TorchSession``."""


class TorchKeepingRecorder(KeepingRecorder[TorchSession], TorchRecorder):
    """A recorder that keeps the last steps of a PyTorch process in memory.

    Args:
        config: The settings of the recording.
        options: The settings of keeping.
        finds_models: True to record the modules of any model that is called, if ``start`` receives no model.
        replaces: True if an earlier recording in the directory may be replaced.
    """

    session_class = TorchMemorySession

    def __init__(
        self, config: Config, options: KeepOptions, *, finds_models: bool = False, replaces: bool = False
    ) -> None:
        super().__init__(config, finds_models)
        self.keep(options, replaces=replaces)


class KeepingFollower(Follower):
    """A driver that runs the recorder in an unchanged script and keeps its last steps."""

    recorder: TorchKeepingRecorder

    def __init__(self, recorder: TorchKeepingRecorder) -> None:
        super().__init__(recorder.config, recorder)

    def note_end(self, end: ScriptEnd) -> None:
        """Write the steps in memory if an exception ended the script."""
        if end.exception and not end.is_interrupted:
            self.recorder.interrupt(Cause.EXCEPTION, end.exception)

    def _handle_optimizer_step(self, optimizer: torch.optim.Optimizer, *rest: Any) -> None:
        if self.recorder.signal_hook is not None:
            self.recorder.signal_hook.install()  # in front of a handler that the script installed later
        with defer_interrupts():
            super()._handle_optimizer_step(optimizer, *rest)

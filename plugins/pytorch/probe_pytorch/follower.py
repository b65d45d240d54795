"""Recording of an unchanged script: steps end when its first optimizer has stepped."""

from __future__ import annotations

import atexit
import os
from typing import Any

import torch
from probe_recording.api import Config
from probe_recording.framework import StepFollower
from probe_recording.interrupts import defer_interrupts

from probe_core.errors import UserError
from probe_pytorch import compat_hooks
from probe_pytorch.recorder import TorchRecorder
from probe_pytorch.script import ScriptEnd

NO_COMPILE_VARIABLE = "TORCH_COMPILE_DISABLE"


class Follower:
    """A driver of the recorder that starts, ends and counts steps in place of the script.

    Args:
        config: The settings of the recording.
        recorder: The recorder; None for a new one that writes all steps.

    Attributes:
        recorder: The recorder.
    """

    def __init__(self, config: Config, recorder: TorchRecorder | None = None) -> None:
        if config.compile == "tap":
            raise UserError(
                'probe run and PROBE_RUN cannot tap a compiled model ("compile": "tap"), because they do not know '
                "the model before the script runs.",
                "Call start(model=model) of a PrecisionDebugger in the script, or leave the field compile out.",
            )
        self.recorder = recorder or TorchRecorder(config, finds_models=True)
        self.recorder.reports_missing = False  # the command reports it together with what was recorded
        self._steps = StepFollower(self.recorder)
        self._environment: str | None = None
        self._handle: Any = None

    def begin(self) -> None:
        """Start recording, and make code that the script compiles run uncompiled."""
        self._environment = os.environ.get(NO_COMPILE_VARIABLE)
        os.environ.setdefault(NO_COMPILE_VARIABLE, "1")
        atexit.register(self.recorder.finish)  # in case an interrupt arrives just before end()
        self.recorder.start(None, None)
        (self._handle,) = compat_hooks.register_step_hooks(None, self._handle_optimizer_step)

    def end(self) -> None:
        """Stop recording and complete the run; calls that are sent are waited for."""
        self._end()
        self.recorder.finish()
        atexit.unregister(self.recorder.finish)

    @defer_interrupts()
    def _end(self) -> None:
        if self._environment is None:
            os.environ.pop(NO_COMPILE_VARIABLE, None)
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        self.recorder.complete()

    def withdraw(self) -> None:
        """Leave the recording to the parent process, in a forked child."""
        atexit.unregister(self.recorder.finish)
        if self._handle is not None:
            self._handle.remove()
        self.recorder.withdraw()

    def note_end(self, end: ScriptEnd) -> None:
        """Note how the script ended, before ``end``."""

    @property
    def has_stepped(self) -> bool:
        """True once an optimizer has stepped."""
        return self._steps.has_stepped

    def _handle_optimizer_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._steps.end_step(optimizer)

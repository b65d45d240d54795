"""Following a script that knows nothing of the recorder: steps are counted at an optimizer's step."""

from __future__ import annotations

import atexit
import os
from typing import Any

import torch
from probe_recording import Config, interrupts_deferred
from torch.optim.optimizer import register_optimizer_step_post_hook

from probe_pytorch.recorder import Recorder

NO_COMPILE = "TORCH_COMPILE_DISABLE"


class Follower:
    """Starts, ends and counts steps in place of the script."""

    def __init__(self, config: Config) -> None:
        self.recorder = Recorder(config, finds_models=True)
        self._first: int | None = None
        self._environment: str | None = None
        self._handle: Any = None

    def begin(self) -> None:
        """Record from now on; what the script compiles runs as it was written."""
        self._environment = os.environ.get(NO_COMPILE)
        os.environ.setdefault(NO_COMPILE, "1")
        atexit.register(self.recorder.finish)  # in case an interrupt comes just before the end
        self.recorder.start(None, None)
        self._handle = register_optimizer_step_post_hook(self._stepped)

    @interrupts_deferred()
    def end(self) -> None:
        """Record no longer; what was recorded is complete."""
        if self._environment is None:
            os.environ.pop(NO_COMPILE, None)
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        self.recorder.finish()
        atexit.unregister(self.recorder.finish)

    @property
    def has_stepped(self) -> bool:
        """True once an optimizer has stepped."""
        return self._first is not None

    @interrupts_deferred()  # a script that catches one goes on with the next step
    def _stepped(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """The first optimizer that steps counts the steps; others do not."""
        if self._first is None:
            self._first = id(optimizer)
        if id(optimizer) != self._first or self.recorder.is_over:
            return
        self.recorder.step()
        self.recorder.start(None, None)

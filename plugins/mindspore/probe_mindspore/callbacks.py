"""Callbacks of ``mindspore.train.Model`` that record its training steps (docs/mindspore.md#model-train)."""

from __future__ import annotations

from typing import Any

from mindspore.train import Callback

from probe_mindspore.debugger import PrecisionDebugger


class MsprobeStep(Callback):  # type: ignore[misc]
    """A callback that records each training step of ``Model.train``, under the name that msprobe gives it.

    Args:
        debugger: The debugger of the process.
    """

    def __init__(self, debugger: PrecisionDebugger) -> None:
        super().__init__()
        self._debugger = debugger

    def on_train_step_begin(self, run_context: Any) -> None:
        """Start recording the model."""
        self._debugger.start(run_context.original_args().network)

    def on_train_step_end(self, run_context: Any) -> None:
        """Write the step."""
        self._debugger.stop()
        self._debugger.step()


class MsprobeInitStep(Callback):  # type: ignore[misc]
    """A callback that continues the step numbers of a resumed training."""

    def on_train_begin(self, run_context: Any) -> None:
        """Set the number of the first step to the number of steps that the model has trained."""
        debugger: Any = PrecisionDebugger  # set_init_step may be called on the class
        debugger.set_init_step(run_context.original_args().cur_step_num)

"""The capture of the phases of a training step, from the batch to the step of the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probe_recording.api import Capture
from torch import nn

from probe_pytorch.capture.backward_phases import BackwardPhaseCapture
from probe_pytorch.capture.modules import list_models
from probe_pytorch.capture.optimizer_phases import OptimizerPhaseCapture
from probe_pytorch.session import TorchSession


class StepPhaseCapture(Capture[TorchSession]):
    """The captures of the phases up to the backward pass and of those of optimizers.

    Args:
        on_call: A function that receives each model and its arguments before its forward.
        hooks_optimizers: True to hook optimizers now, because later steps begin inside a hook of an optimizer.
    """

    def __init__(
        self, on_call: Callable[[nn.Module, Any, dict[str, Any]], None], *, hooks_optimizers: bool = False
    ) -> None:
        self._backward = BackwardPhaseCapture(on_call)
        self._optimizers = OptimizerPhaseCapture(self._backward)
        if hooks_optimizers:
            self._optimizers.hook_optimizers()
        self.add_model = self._backward.add_model
        self.record_inputs = self._backward.record_inputs

    def install(self, session: TorchSession, model: Any) -> None:
        """Record the phases of a step of the models."""
        self._backward.install(session, list_models(model))
        self._optimizers.install()

    def complete(self, session: TorchSession) -> None:
        """Note the phases that the step did not show."""
        self._backward.complete()
        self._optimizers.complete(session)

    def remove(self) -> None:
        """Remove all hooks but those of optimizers."""
        self._optimizers.remove()
        self._backward.remove()

    def close(self) -> None:
        """Remove the hooks of optimizers."""
        self._optimizers.close()

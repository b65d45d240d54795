"""Gradients that a MindSpore optimizer receives, in PyNative mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mindspore
from mindspore import nn

from probe_core.errors import UserError
from probe_watch.grad_probe.measurement import MeasuredGradient, measure_array
from probe_watch.grad_probe.recorder import Gradient, GradRecorder
from probe_watch.grad_probe.settings import GradSettings


class MindSporeGradRecorder(GradRecorder):
    """A recorder of the gradients that a MindSpore optimizer is called with."""

    def observe(self, model: Any) -> Callable[[], None]:
        """Call ``record_step`` before each call of an optimizer.

        Raises:
            UserError: ``model`` is not an optimizer, or the program runs in GRAPH_MODE.
        """
        parameters = getattr(model, "parameters", None)
        if not isinstance(model, nn.Cell) or callable(parameters) or parameters is None:
            raise UserError(
                f"monitor() needs the optimizer for MindSpore, not {type(model).__name__}.",
                "Write debugger.monitor(optimizer).",
            )
        if mindspore.get_context("mode") == mindspore.GRAPH_MODE:
            raise UserError(
                "Gradients are not recorded in GRAPH_MODE, in which an optimizer runs as a compiled graph.",
                "Call mindspore.set_context(mode=mindspore.PYNATIVE_MODE) before monitor().",
            )
        names = [str(parameter.name) for parameter in parameters]
        self.warn_unknown(names)

        def record_gradients(_: Any, inputs: Any) -> None:
            self.record_step(self._iterate_gradients(names, inputs))

        return model.register_forward_pre_hook(record_gradients).remove  # type: ignore[no-any-return]

    def _iterate_gradients(self, names: list[str], inputs: Any) -> Iterator[Gradient]:
        """Yield the gradients to record, which an optimizer receives in the order of its parameters."""
        gradients = inputs[0] if isinstance(inputs, tuple) and len(inputs) == 1 else inputs
        if isinstance(gradients, mindspore.Tensor):
            gradients = (gradients,)
        for name, gradient in zip(names, gradients):
            if gradient is not None and self.is_wanted(name):
                yield _create_gradient(name, gradient)


def _create_gradient(name: str, tensor: Any) -> Gradient:
    shape = tuple(tensor.shape)
    return Gradient(name, shape, lambda settings: _measure(tensor, settings))


def _measure(tensor: Any, settings: GradSettings) -> MeasuredGradient:
    """Return what is measured of a gradient, in host memory."""
    if tensor.dtype == mindspore.bfloat16:
        tensor = tensor.astype(mindspore.float32)
    return measure_array(tensor.asnumpy(), settings)
